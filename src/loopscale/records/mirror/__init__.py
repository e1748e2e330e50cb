"""The mirror: a copy of the records as Parquet tables, which SQL queries read."""
