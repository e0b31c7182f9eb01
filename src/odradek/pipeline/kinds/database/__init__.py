"""Databases without a jar, by SQLAlchemy: what their source (`kinds.database_source`) and sink (`kinds.database_sink`)
share.

    access      a place as the file names it, connections, and what a failure means
    batches     whether a batch is in the database already: the pure decision, and the row that knows it
    columns     what a table's columns take from Spark's types, and which types they have in Spark
    loading     rows into a table: PostgreSQL's COPY, SQLite's INSERT, and upserts by way of a temporary table
    reading     rows of a table, read by a Spark worker

All names of tables and columns are quoted. Passwords travel in `Place` alone: to the driver's connections, and to
workers in the code that Spark sends them, never in options, plans or URLs that are shown.
"""
