"""Delta and Iceberg tables as sinks, by the jars that the user provides: Spark's own streaming sink of that name."""

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from odradek.pipeline.file.definition import Pipeline, Sink, TableSink
from odradek.pipeline.kinds.sink import Batch, SinkKind

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class SparkTableSinkKind(SinkKind):
    def __init__(self, pipeline: Pipeline, sink: Sink, target: TableSink) -> None:
        super().__init__(pipeline, sink)
        self.target = target

    @property
    def destination(self) -> str:
        return f"{self.target.format} table {self.target.target}"

    @property
    def guarantee(self) -> str:
        return f"exactly once, by the transaction log of {self.target.format}"

    def plan(self, frame: DataFrame) -> DataFrame:
        rows = super().plan(frame)
        self._check_columns(rows, self.target.partition_by, "partition_by")
        return rows

    def spark_writer(self, writer: "DataStreamWriter") -> "DataStreamWriter":
        writer = writer.format(self.target.format).options(**self.target.options)
        if self.target.partition_by:
            writer = writer.partitionBy(*self.target.partition_by)
        place = self.target.target
        return writer.option("path", self.pipeline.path(place)) if "/" in place else writer

    def write(self, batch: Batch, frame: DataFrame) -> int:
        raise NotImplementedError("Spark writes lake tables itself")
