"""Values decoded to typed columns where they are read, with the results of Spark's own functions.

Spark's `from_json` is the reference, and equality comes by construction: the worker decides only values in which
there is nothing to judge, and leaves every other one *undecided*, with its bytes, to Spark.

    program        a schema as tables that the kernels follow; spark_shapes: Spark's types for it
    numbers        decimal text to whole numbers, doubles and floats
    times          text to dates and timestamps
    texts          strings: where they end, whether they are UTF-8, their escapes
    scalars        a cell for a number or a text
    json_kernel    one JSON object per value
    csv_kernel     one line of CSV
    avro_kernel    one Avro record, by the tables of avro_program
    avro           Avro in plain Python, for what the kernel leaves
    decoders       the kernels, each behind one interface
    columns        from a kernel's cells to Arrow arrays
    settling       the undecided ones, by Spark's functions, in a DataFrame
"""
