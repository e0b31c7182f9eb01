"""Makes rows from records, and rows from rows: formats, schemas, SQL and functions."""
