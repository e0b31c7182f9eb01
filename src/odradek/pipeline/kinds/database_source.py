"""A table of a database as it is now, without a jar: the static side of a join.

One task reads it, anew for every batch, as Arrow. What is to be read travels in the code that Spark sends its workers:
plans and options show neither the address nor the password.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from odradek.pipeline.file.definition import DatabaseTable
from odradek.pipeline.kinds.database.access import DatabaseAway, DatabaseRefused, check_installed, place_of
from odradek.pipeline.kinds.row_source import RowSourceKind
from odradek.pipeline.kinds.source import Offsets

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


class DatabaseSourceKind(RowSourceKind[DatabaseTable]):
    @property
    def reads(self) -> str:
        return self.origin.table or self.origin.query

    def batch(
        self, spark: "SparkSession", *, starting: Offsets | None = None, ending: Offsets | None = None
    ) -> DataFrame:
        check_installed(self.pipeline, self.source.key, self.origin.database)
        from pyspark.sql.pandas.types import to_arrow_schema

        from odradek.pipeline.kinds.database.reading import read, relation_of

        place = place_of(self.pipeline, self.origin.database)
        declared = self.schema() if self.declares_columns else None
        try:
            relation = relation_of(place, self.origin.table, self.origin.query, declared)
        except (DatabaseAway, DatabaseRefused) as error:
            problem = f"the table cannot be read: {error}"
            raise self.pipeline.document.unreachable((*self.source.key, "database"), problem) from None
        statement, arrow = relation.statement, to_arrow_schema(relation.columns, timezone="UTC")

        def rows(_: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
            yield from read(place, statement, arrow)

        return spark.range(0, 1, 1, 1).mapInArrow(rows, relation.columns)
