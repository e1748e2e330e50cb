"""Records as plain data: notes, runs, columns, tables, curves and errors."""
