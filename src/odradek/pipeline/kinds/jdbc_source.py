"""A table, or a query, of a database as it is now: the static side of a join."""

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from odradek.pipeline.file.definition import JdbcTable
from odradek.pipeline.kinds.jdbc import jdbc_options
from odradek.pipeline.kinds.row_source import RowSourceKind, cause
from odradek.pipeline.kinds.source import Offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class JdbcSourceKind(RowSourceKind[JdbcTable]):
    @property
    def reads(self) -> str:
        return self.origin.table or self.origin.query

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
