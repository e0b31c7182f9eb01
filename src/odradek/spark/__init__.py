"""Topics as Spark DataFrames: `format("odradek")`, a source and a sink that need no connector jar.

The format is known to Spark by itself (`pyspark_odradek`). What is here to be imported is one helper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["write_updates"]


def write_updates(writer: DataStreamWriter, options: Mapping[str, str]) -> DataStreamWriter:
    """Write a stream in update mode, which Spark refuses to Python sinks, batch by batch.

    `options` are those of the sink. Rows arrive at least once, as with `format("odradek")`.
    """

    def append(batch: DataFrame, _: int) -> None:
        batch.write.format("odradek").options(**dict(options)).mode("append").save()

    return writer.outputMode("update").foreachBatch(append)
