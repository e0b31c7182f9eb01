"""A table of a database as it is now, without a jar: the static side of a join.

One task reads it, anew for every batch, as Arrow. What is to be read travels in the code that Spark sends its workers:
plans and options show neither the address nor the password.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from odradek.pipeline.file.definition import DatabaseTable, Pipeline, Source
from odradek.pipeline.kinds.database.access import DatabaseAway, DatabaseRefused, check_installed, place_of
from odradek.pipeline.kinds.source import Offsets, SourceKind

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


class DatabaseSourceKind(SourceKind):
    decodes = False

    def __init__(self, pipeline: Pipeline, source: Source, origin: DatabaseTable) -> None:
        super().__init__(pipeline, source)
        self.origin = origin

    @property
    def reads(self) -> str:
        return self.origin.table or self.origin.query

    def schema(self) -> StructType:
        declared = self.source.schema or self.source.schema_file
        return super().schema() if declared else StructType()

    def stream(self, spark: "SparkSession", group: str, *, headers: bool, named: bool) -> DataFrame:
        return self.batch(spark)

    def batch(
        self, spark: "SparkSession", *, starting: Offsets | None = None, ending: Offsets | None = None
    ) -> DataFrame:
        check_installed(self.pipeline, self.source.key, self.origin.database)
        from pyspark.sql.pandas.types import to_arrow_schema

        from odradek.pipeline.kinds.database.reading import read, relation_of

        place = place_of(self.pipeline, self.origin.database)
        declared = self.schema() if self.source.schema or self.source.schema_file else None
        try:
            relation = relation_of(place, self.origin.table, self.origin.query, declared)
        except (DatabaseAway, DatabaseRefused) as error:
            problem = f"the table cannot be read: {error}"
            raise self.pipeline.document.unreachable((*self.source.key, "database"), problem) from None
        statement, arrow = relation.statement, to_arrow_schema(relation.columns, timezone="UTC")

        def rows(_: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
            yield from read(place, statement, arrow)

        return spark.range(0, 1, 1, 1).mapInArrow(rows, relation.columns)
