"""The mirror: records as Parquet tables that SQL can query."""
