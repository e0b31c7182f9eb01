"""The common part of sinks for lake tables (`kinds.lake_sink` writes a batch with it).

    order      whether a batch is in a table already: the pure decision
    schemas    columns of rows and of a table: what fits, what is added, what is refused; pure
    files      tasks write Parquet files; what the driver is told about them
    storage    `[storage]` in the words of delta-rs, pyiceberg and pyarrow
    table      the interface of a table: look, create, add columns, commit, compact
    delta      a table of delta-rs
    iceberg    a table of pyiceberg
    iceberg_files  how pyiceberg opens files

docs/decisions/0011 says what happens at every crash. Files are written before the commit that names them, so a crash
leaves files that no reader sees, and never a reader that misses one.
"""
