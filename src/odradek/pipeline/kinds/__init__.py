"""Kinds of sources and sinks: a module for each, behind one interface.

    source, sink    the interfaces
    registry        finds the kind of a source or sink of the file
    topic_source, file_source, static_file_source, jdbc_source
    topic_sink, file_sink, jdbc_sink, console_sink
    delta_sink, iceberg_sink    lake tables without a jar: lake_sink is what they share, lake/ its parts
    spark_table_sink            lake tables by Spark's own connectors
    topic_records   records read and written without Spark
    topics          the topics of a pipeline, inspected and created; jdbc: what its source and sink share
    dead_letters    records and rows that were rejected, and where they are written
    database_source, database_sink    databases without a jar; database/ has their parts
    data_source     whatever Spark reads by the name of a format; function_sink: a function of the user's
    avro_values     values of a topic sink in Avro, and schema_registry
    gathered        rows of a batch at the driver

Nobody else asks of which kind a source or sink is. To add one: a dataclass and its reader in `file/`, a module here,
and a row in `registry`.
"""
