"""From records to rows, and from rows to rows: formats, schemas, SQL and functions."""
