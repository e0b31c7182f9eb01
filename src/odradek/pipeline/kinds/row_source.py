"""Sources of rows, whose columns are there already: nothing is decoded, and no record can be set aside.

Most of them are tables as they are now, the static side of a join: they are read anew for every batch.
"""

from typing import TYPE_CHECKING, Generic, TypeVar

from pyspark.sql.types import StructType

from odradek.pipeline.file.definition import (
    Pipeline,
    Source,
)
from odradek.pipeline.kinds.source import SourceKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Origin = TypeVar("Origin")


class RowSourceKind(SourceKind, Generic[Origin]):
    decodes = False

    def __init__(self, pipeline: Pipeline, source: Source, origin: Origin) -> None:
        super().__init__(pipeline, source)
        self.origin = origin

    @property
    def declares_columns(self) -> bool:
        return bool(self.source.schema or self.source.schema_file)

    def schema(self) -> StructType:
        return super().schema() if self.declares_columns else StructType()

    def stream(self, spark: "SparkSession", group: str, *, headers: bool, named: bool) -> "DataFrame":
        return self.batch(spark)


def cause(error: BaseException) -> str:
    """The first line of what Java says."""
    java = getattr(error, "java_exception", None)
    return str(java.getMessage() if java is not None else error).strip().splitlines()[0]
