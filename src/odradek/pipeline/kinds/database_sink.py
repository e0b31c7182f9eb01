"""A table of a database as a sink, without a jar: appended, or upserted and deleted by key, each row exactly once.

The driver writes a batch in one transaction of the database, together with a row that names the batch
(`database.batches`). A batch that runs again finds its row there, and writes nothing. Everything is computed before
the transaction begins.

If the database refuses a row (a constraint, a value out of range) and there is a place for dead letters, the batch is
tried again in the same way, in halves behind savepoints, until single rows are left; their letters are written before
the transaction is committed. An upsert with a null key is found before anything is written, like that of a topic.
"""

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from odradek.pipeline.file.definition import DatabaseSink, Pipeline, Sink, Upsert
from odradek.pipeline.kinds.database import batches
from odradek.pipeline.kinds.database.access import (
    DatabaseAway,
    DatabaseRefused,
    RowsRefused,
    check_installed,
    connected,
    place_of,
)
from odradek.pipeline.kinds.database.batches import Adoption, Entry, Order, Verdict, adoption_of, decide
from odradek.pipeline.kinds.database.columns import TableView, misfit, simple_problem, view_of
from odradek.pipeline.kinds.database.loading import Loader, Target, split_name
from odradek.pipeline.kinds.dead_letters import write_refused
from odradek.pipeline.kinds.gathered import Gathered, gathered
from odradek.pipeline.kinds.sink import Batch, SinkKind, without_metadata
from odradek.pipeline.kinds.topic_sink import SINK_MARK
from odradek.pipeline.rows.plans import is_grouped
from odradek.spark.query_checkpoint import QueryCheckpoint

if TYPE_CHECKING:
    from sqlalchemy import Connection

ADOPTION = "odradek-database.json"  # in Spark's checkpoint
IN_ORDER = ("_timestamp", "_partition", "_offset")
NUMBER = "__number"
ALREADY = "already exists"
DELETED = "__deleted"  # whether a row deletes the one of its key


class DatabaseSinkKind(SinkKind):
    def __init__(self, pipeline: Pipeline, sink: Sink, target: DatabaseSink) -> None:
        super().__init__(pipeline, sink)
        self.target, self._upsert = target, target.upsert
        self._key = target.upsert.key if target.upsert is not None else ()
        self._place = place_of(pipeline, target.database)
        self._schema, self._table = split_name(target.table)

    @property
    def destination(self) -> str:
        return f"table {self.target.table}"

    @property
    def guarantee(self) -> str:
        return f"exactly once, by a row of {batches.TABLE} in the transaction of each batch"

    # Checks

    def plan(self, frame: DataFrame) -> DataFrame:
        """Rows keep the columns that say where they came from: dead letters and the order of upserts need them."""
        check_installed(self.pipeline, self.sink.key, self.target.database)
        for field in super().plan(frame).schema.fields:
            if problem := simple_problem(field.dataType):
                raise self._error("from", f"the column '{field.name}' {problem}")
        return frame if self._upsert is None else self._planned_upsert(frame, self._upsert)

    def _planned_upsert(self, frame: DataFrame, upsert: Upsert) -> DataFrame:
        """Also with what says whether a row deletes."""
        self._check_columns(frame, upsert.key, "key")
        self._check_columns(frame, upsert.order_by, "order_by")
        if not self._order(frame) and not is_grouped(frame):
            raise self._error(
                "mode",
                "nothing says which of two rows of a key is the last: give order_by, or keep _timestamp, _partition "
                "and _offset in the rows",
            )
        first = upsert.key[0]
        changed = {first: self._not_null(frame, first)}
        if upsert.delete_when:
            changed[DELETED] = self._met(frame, upsert.delete_when, "delete_when")
        return frame.withColumns(changed)

    def _not_null(self, frame: DataFrame, first: str) -> Column:
        """The first column of the key, or an error that names the sink."""
        is_null = F.lit(False)
        for name in self._key:
            is_null = is_null | F.col(f"`{name}`").isNull()
        text = f"{SINK_MARK}'{self.sink.name}': the key is null, and an upsert needs one"
        failed = F.raise_error(F.lit(text)).cast(frame.schema[first].dataType)
        return F.when(is_null, failed).otherwise(F.col(f"`{first}`"))

    def _order(self, frame: DataFrame) -> tuple[str, ...]:
        """Columns that say which row of a key is the last, and among equal ones the order of the records; none if
        groups have one row each."""
        given = self._upsert.order_by if self._upsert is not None else ()
        records = IN_ORDER if all(frame.columns.count(name) == 1 for name in IN_ORDER) else ()
        return (*given, *(name for name in records if name not in given))

    def check_outside(self, rows: DataFrame) -> None:
        """The table must exist, and take the rows."""
        try:
            with connected(self._place) as connection:
                view = view_of(connection, self._schema, self._table)
        except (DatabaseAway, DatabaseRefused) as error:
            raise self._error("database", str(error)) from None
        if view is None:
            problem = f"there is no table {self.target.table}: create it first, or correct the name"
            raise self._error("table", problem)
        self._check_table(_written(rows), view)

    def _check_table(self, rows: DataFrame, view: TableView) -> None:
        name = self.target.table
        for field in rows.schema.fields:
            column = view.columns.get(field.name)
            if column is None:
                problem = f"table {name} has no column '{field.name}'; it has {', '.join(view.columns)}"
                raise self._error("from", problem)
            if column.is_computed:
                problem = f"table {name} computes its column '{field.name}' itself: leave it out of the rows"
                raise self._error("from", problem)
            if problem := misfit(field.dataType, column.kind, self._place.dialect):
                kind = field.dataType.simpleString()
                raise self._error(
                    "from", f"'{field.name}' is {kind}, and that column of table {name} {problem}"
                )
        for column in view.columns.values():
            if not column.is_filled and column.name not in rows.columns:
                problem = f"table {name} needs a value for '{column.name}', and the rows have no such column"
                raise self._error("from", problem)
        if self._key and tuple(sorted(self._key)) not in view.keys:
            key = ", ".join(self._key)
            problem = f"table {name} has no primary key or unique index on ({key}), which an upsert needs"
            raise self._error("key", problem)

    def check_declared(self, *, create: bool = False) -> None:
        """The table of batches is created by a run."""
        if not create:
            return
        table, cure = batches.table_of(self._schema), ""
        try:
            with connected(self._place, writes=True) as connection:
                if view_of(connection, self._schema, batches.TABLE) is None:
                    ddl = batches.ddl_of(table, self._place.dialect)
                    cure = (
                        f". Let somebody who may do so create it, and grant SELECT, INSERT and UPDATE: {ddl}"
                    )
                    table.create(connection, checkfirst=True)
        except RowsRefused:
            return  # another pipeline has created it at the same moment
        except (DatabaseAway, DatabaseRefused) as error:
            if ALREADY in str(error):
                return
            problem = f"the table {batches.TABLE}, which makes rows exactly once, cannot be created: {error}"
            raise self._error("database", f"{problem}{cure}") from None

    def _error(self, key: str, problem: str) -> Exception:
        return self.pipeline.error((*self.sink.key, key), problem)

    def readable(self, row: dict[str, object]) -> dict[str, object]:
        return {name: value for name, value in row.items() if name != DELETED}

    # Writing

    def write(self, batch: Batch, frame: DataFrame) -> int:
        checkpoint = QueryCheckpoint.of(frame)
        order = Order(
            checkpoint.query_id,
            batch.number,
            checkpoint.fingerprint(batch.number),
            f"{self._place.name} {self.target.table}",
        )
        with gathered(self._newest(frame)) as rows:
            try:
                return self._write(checkpoint, order, rows, frame, None)
            except RowsRefused:
                if self.pipeline.dead_letters is None:
                    raise
                return self._write(checkpoint, order, rows, frame, batch)

    def _newest(self, frame: DataFrame) -> DataFrame:
        """The last row of each key."""
        order = self._order(frame)
        if not self._key or not order:
            return frame
        key = [F.col(f"`{name}`") for name in self._key]
        newest_first = [F.col(f"`{name}`").desc_nulls_last() for name in order]
        numbered = frame.withColumn(
            NUMBER, F.row_number().over(Window.partitionBy(*key).orderBy(*newest_first))
        )
        return numbered.where(F.col(NUMBER) == 1).drop(NUMBER)

    def _write(
        self,
        checkpoint: QueryCheckpoint,
        order: Order,
        rows: Gathered,
        frame: DataFrame,
        refusing: Batch | None,
    ) -> int:
        """In one transaction. `refusing`: rows that the database refuses become dead letters of this batch."""
        table = batches.table_of(self._schema)
        with connected(self._place, writes=True) as connection:
            entry = batches.look(connection, table, order.sink)
            verdict = decide(order, entry, adoption_of(checkpoint.note(ADOPTION)))
            if verdict is Verdict.SKIP:
                return 0
            if verdict is Verdict.ADOPT:
                checkpoint.write_note(ADOPTION, Adoption(order.batch, order.database).as_text())
            refused = self._load(connection, rows, frame, refusing)
            self._note(connection, order, entry, rows.count - refused)
            return refused

    def _note(self, connection: "Connection", order: Order, entry: Entry | None, count: int) -> None:
        table, name = batches.table_of(self._schema), f"{self.pipeline.name}.{self.sink.name}"
        batches.note(connection, table, order, entry, count, name)

    def _load(
        self, connection: "Connection", rows: Gathered, frame: DataFrame, refusing: Batch | None
    ) -> int:
        import pyarrow as pa

        columns = tuple(_written(frame).columns)
        marked = DELETED if DELETED in frame.columns else None
        target = Target(self._schema, self._table, columns, self._key, bool(self._order(frame)), marked)
        loader = Loader(connection, self._place, target)
        if not rows.count:
            return 0
        if refusing is None:
            loader.load(rows)
            return 0
        count = 0
        for number, part in enumerate(rows):
            if refused := loader.load_by_halves(part):
                whole = pa.Table.from_batches([part])
                letters = whole.drop_columns([DELETED]) if target.deleted else whole
                place = f"{refusing.letters_place()}-{number}"
                write_refused(frame.sparkSession, self.pipeline, self.sink.name, letters, refused, place)
            count += len(refused)
        return count


def _written(rows: DataFrame) -> DataFrame:
    """The columns that go into the table, of planned rows."""
    return without_metadata(rows).drop(DELETED)
