"""A table of a database as a sink: a batch is one transaction.

So a batch that the database refused has left nothing there. If the refusal is about a row (a constraint, a value out
of range: SQLSTATE classes 22 and 23), each half is tried in its own transaction, until single rows are left; those
become dead letters. Other failures are handled by the run.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.file.definition import JdbcSink, Pipeline, Sink
from odradek.pipeline.kinds.dead_letters import row_letters, write_letters
from odradek.pipeline.kinds.jdbc import ROW_REFUSED, jdbc_options, refusal
from odradek.pipeline.kinds.sink import Batch, SinkKind, without_metadata

NUMBER = "__number"


class JdbcSinkKind(SinkKind):
    def __init__(self, pipeline: Pipeline, sink: Sink, target: JdbcSink) -> None:
        super().__init__(pipeline, sink)
        self.table = target.target

    @property
    def destination(self) -> str:
        return f"table {self.table.table}"

    def plan(self, frame: DataFrame) -> DataFrame:
        """Rows keep the columns that say where they came from: dead letters need them."""
        super().plan(frame)
        return frame

    def check_outside(self, rows: DataFrame) -> None:
        """The table must exist, and have the columns."""
        pipeline, name = self.pipeline, self.table.table
        reader = rows.sparkSession.read.format("jdbc").options(**jdbc_options(self.table))
        try:
            table = reader.option("dbtable", name).load()
        except Exception as error:
            reason = str(error).strip().splitlines()[0]
            problem = f"table {name} cannot be read: {reason}"
            raise pipeline.error((*self.sink.key, "jdbc"), problem) from None
        known = {name.lower() for name in table.columns}
        for column in without_metadata(rows).columns:
            if column.lower() not in known:
                problem = f"table {name} has no column '{column}'; it has {', '.join(table.columns)}"
                raise pipeline.error((*self.sink.key, "from"), problem)

    def write(self, batch: Batch, frame: DataFrame) -> int:
        try:
            self._write_rows(frame)
        except Exception as error:
            if self.pipeline.dead_letters is None or not ROW_REFUSED.search(str(error)):
                raise
            return self._write_by_halves(frame, batch.letters_place())
        return 0

    def _write_rows(self, frame: DataFrame) -> None:
        """All rows in one transaction, over one connection: a failed batch leaves nothing behind."""
        options = jdbc_options(self.table) | {"dbtable": self.table.table}
        without_metadata(frame).coalesce(1).write.format("jdbc").options(**options).mode("append").save()

    def _write_by_halves(self, rows: DataFrame, place: str) -> int:
        found = rows.collect()
        numbered = (
            rows.sparkSession.createDataFrame(found, rows.schema)
            .coalesce(1)
            .withColumn(NUMBER, F.monotonically_increasing_id())
        )
        refused: dict[int, str] = {}

        def write(first: int, end: int) -> None:
            part = numbered.where((F.col(NUMBER) >= first) & (F.col(NUMBER) < end)).drop(NUMBER)
            try:
                self._write_rows(part)
            except Exception as error:
                if not ROW_REFUSED.search(str(error)):
                    raise
                if end - first == 1:
                    refused[first] = refusal(str(error))
                    return
                middle = (first + end) // 2
                write(first, middle)
                write(middle, end)

        write(0, len(found))
        for number, reason in refused.items():
            row = numbered.where(F.col(NUMBER) == number).drop(NUMBER)
            letters = row_letters(row, self.pipeline, "sink", self.sink.name, F.lit(reason))
            write_letters(letters, self.pipeline, f"{place}-{number}")
        return len(refused)
