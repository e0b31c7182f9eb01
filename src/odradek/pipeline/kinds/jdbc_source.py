"""A table, or a query, of a database as it is now: the static side of a join."""

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from odradek.pipeline.file.definition import JdbcTable, Pipeline, Source
from odradek.pipeline.kinds.jdbc import jdbc_options
from odradek.pipeline.kinds.source import Offsets, SourceKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class JdbcSourceKind(SourceKind):
    decodes = False

    def __init__(self, pipeline: Pipeline, source: Source, origin: JdbcTable) -> None:
        super().__init__(pipeline, source)
        self.origin = origin

    @property
    def reads(self) -> str:
        return self.origin.table or self.origin.query

    def schema(self) -> StructType:
        return StructType()

    def stream(self, spark: "SparkSession", group: str, *, headers: bool, named: bool) -> DataFrame:
        return self.batch(spark)

    def batch(
        self, spark: "SparkSession", *, starting: Offsets | None = None, ending: Offsets | None = None
    ) -> DataFrame:
        options = jdbc_options(self.origin)
        options |= {"query": self.origin.query} if self.origin.query else {"dbtable": self.origin.table}
        try:
            return spark.read.format("jdbc").options(**options).load()
        except Exception as error:  # Spark's, or the driver's through Java
            problem = f"the table cannot be read: {cause(error)}"
            raise self.pipeline.document.unreachable((*self.source.key, "jdbc"), problem) from None


def cause(error: BaseException) -> str:
    """The first line of what Java says."""
    java = getattr(error, "java_exception", None)
    return str(java.getMessage() if java is not None else error).strip().splitlines()[0]
