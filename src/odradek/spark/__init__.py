"""Topics as Spark DataFrames: `format("odradek")`, a source and a sink that need no connector jar.

Spark finds the format by itself (`pyspark_odradek`), if its workers use the Python that it is installed in. Importing
this package before the first session makes them use this one, unless `PYSPARK_PYTHON` says otherwise.

    session          a quiet session with defaults for one machine
    load_typed       a topic whose values are decoded to typed columns
    write_updates    a stream in update mode
    lag.LagListener  how far queries are behind, to the log and to Prometheus
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.spark.launching import SparkUnavailable, session, use_this_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

__all__ = ["SparkUnavailable", "load_typed", "session", "write_updates"]

use_this_python()


def load_typed(reader: DataFrameReader | DataStreamReader, form: str, schema: str = "") -> DataFrame:
    """Load a topic, batch or stream, with the column `value` decoded where it is read.

    `form` is `json` or `csv`, with the schema of the values as DDL; `avro`, with the Avro schema; or `text`. The rows
    are those that Spark's functions would give for the plain bytes; a value that is not Avro is null.
    """
    from odradek.spark.typed.settling import load

    return load(reader, form, schema)


def write_updates(writer: DataStreamWriter, options: Mapping[str, str]) -> DataStreamWriter:
    """Write a stream in update mode, which Spark refuses to Python sinks, batch by batch.

    `options` are those of the sink. Rows arrive at least once, as with `format("odradek")`.
    """

    def append(batch: DataFrame, batch_id: int) -> None:
        writer = batch.write.format("odradek").option("reachedBefore", batch_id > 0)
        writer.options(**dict(options)).mode("append").save()

    return writer.outputMode("update").foreachBatch(append)
