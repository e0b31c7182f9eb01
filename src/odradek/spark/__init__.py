"""Topics as Spark DataFrames: `format("odradek")`, a source and a sink that need no connector jar.

Spark finds the format by itself (`pyspark_odradek`), if its workers use the Python that it is installed in. Importing
this package before the first session makes them use this one, unless `PYSPARK_PYTHON` says otherwise.

    session          a quiet session with defaults for one machine
    load_typed       a topic whose values are decoded to typed columns
    table            a topic with its history in an archive
    write_exactly_once  a stream, each row once for readers of committed data
    write_once       the same for a batch
    write_updates    a stream in update mode, at least once
    lag.LagListener  how far queries are behind, to the log and to Prometheus
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.spark.launching import SparkUnavailable, session, use_this_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

__all__ = [
    "SparkUnavailable",
    "load_typed",
    "session",
    "table",
    "write_exactly_once",
    "write_once",
    "write_updates",
]

use_this_python()


def load_typed(reader: DataFrameReader | DataStreamReader, form: str, schema: str = "") -> DataFrame:
    """Load a topic, batch or stream, with the column `value` decoded where it is read.

    `form` is `json` or `csv`, with the schema of the values as DDL; `avro`, with the Avro schema; or `text`. The rows
    are those that Spark's functions would give for the plain bytes; a value that is not Avro is null.
    """
    from odradek.spark.typed.settling import load

    return load(reader, form, schema)


def table(
    spark: SparkSession,
    *,
    archive: str,
    topic: str,
    options: Mapping[str, str] | None = None,
    storage: Mapping[str, str] | None = None,
) -> DataFrame:
    """A topic with its history, as it is now: what is archived, in union with what the topic has beyond it.

    `options` are those of the source, like `kafka.bootstrap.servers`; without them, only what is archived. `storage`:
    settings of object storage for delta-rs. If Spark has the jars for that storage, it reads with settings of its own.
    """
    from odradek.spark.one_table import table

    return table(spark, archive, topic, options, storage)


def write_exactly_once(writer: DataStreamWriter, options: Mapping[str, str]) -> DataStreamWriter:
    """Write a stream in append or update mode, so that readers of committed data see each row once.

    `options` are those of the sink. The query's `checkpointLocation` must be set, and stay the same.
    """
    from odradek.spark.exactly_once import write_stream

    return write_stream(writer, options)


def write_once(frame: DataFrame, options: Mapping[str, str], *, id: str) -> bool:
    """Write a batch, unless one with this id was written before; returns whether this call wrote it.

    All rows become visible together. `id` names the work, like "orders of 2026-11-18": it is the same if the program
    runs again, and never used for anything else.
    """
    from odradek.spark.exactly_once import write_batch

    return write_batch(frame, options, id).is_new


def write_updates(writer: DataStreamWriter, options: Mapping[str, str]) -> DataStreamWriter:
    """Write a stream in update mode, which Spark refuses to Python sinks, batch by batch.

    `options` are those of the sink. Rows arrive at least once, as with `format("odradek")`.
    """

    def append(batch: DataFrame, batch_id: int) -> None:
        writer = batch.write.format("odradek").option("reachedBefore", batch_id > 0)
        writer.options(**dict(options)).mode("append").save()

    return writer.outputMode("update").foreachBatch(append)
