"""SQL over topics and archives, by DuckDB and without Spark.

    reading      the records of a topic as an Arrow table
    columns      which columns a table has: inferred from values, or given
    avro_values  values in Avro, decoded by a function of DuckDB
    tables       what a name in a query stands for: a topic, or an archive and the rest of its topic
    query        runs a query; what it needs is read first

Batches are decoded by the kernels of `odradek.spark`, which need no Spark; a small topic is decoded in plain Python,
because importing numba takes longer than that.
"""
