"""Files as a sink: Spark writes them, and lists the files of finished batches in `_spark_metadata`."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

from odradek.pipeline.file.definition import FileSink, Pipeline, Sink
from odradek.pipeline.kinds.sink import Batch, SinkKind

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SPARK_METADATA = "_spark_metadata"


class FileSinkKind(SinkKind):
    def __init__(self, pipeline: Pipeline, sink: Sink, target: FileSink) -> None:
        super().__init__(pipeline, sink)
        self.target = target

    @property
    def destination(self) -> str:
        return f"{self.target.format} files in {self.target.path}"

    @property
    def guarantee(self) -> str:
        return "exactly once, for readers that honour _spark_metadata, as Spark does"

    def plan(self, frame: DataFrame) -> DataFrame:
        rows = super().plan(frame)
        self._check_columns(rows, self.target.partition_by, "partition_by")
        self._check_types(rows)
        return rows

    def _check_types(self, rows: DataFrame) -> None:
        key = self.sink.key
        if len(set(self.target.partition_by)) == len(rows.columns):
            raise self.pipeline.error((*key, "partition_by"), "at least one column must not be among these")
        for field in rows.schema.fields:
            nested = isinstance(field.dataType, (StructType, ArrayType, MapType, BinaryType))
            if self.target.format == "csv" and nested:
                kind = field.dataType.simpleString()
                problem = f"the column '{field.name}' is {kind}, which CSV cannot represent"
                raise self.pipeline.error((*key, "from"), f"{problem}: cast it, or write JSON or Parquet")

    def spark_writer(self, writer: "DataStreamWriter") -> "DataStreamWriter":
        writer = writer.format(self.target.format).options(**self.target.options)
        if self.target.partition_by:
            writer = writer.partitionBy(*self.target.partition_by)
        return writer.option("path", self.pipeline.path(self.target.path))

    def write(self, batch: Batch, frame: DataFrame) -> int:
        raise NotImplementedError("Spark writes files itself")

    @property
    def _output(self) -> Path | None:
        """The directory, if it is on this machine."""
        return None if "://" in self.target.path else Path(self.pipeline.path(self.target.path))

    def committed(self, batch: int) -> bool:
        """Look the batch up in Spark's list, which has a file for each batch, and now and then one that replaces
        those before it.
        """
        if self._output is None:
            return False
        listed = (path.name.split(".")[0] for path in (self._output / SPARK_METADATA).glob("[0-9]*"))
        return any(name.isdigit() and int(name) >= batch for name in listed)

    def leftovers(self) -> list[Path]:
        output = self._output
        return [output] if output is not None and (output / SPARK_METADATA).is_dir() else []

    def reset(self) -> None:
        for output in self.leftovers():
            shutil.rmtree(output)
