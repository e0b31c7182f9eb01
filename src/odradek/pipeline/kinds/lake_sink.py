"""Lake tables as sinks, without a jar: tasks write Parquet files, the driver's commit adds them to the table.

Each batch is in the table once. The commit of its rows also says which batch of the query it was (`lake.order`), and a
batch that runs again asks first. Where someone else has changed the table between the look and the commit, the commit
is refused, and we look again: the same files are named on top of the newer version, unless the batch is there by now.

The checkpoint remembers which table it writes to, so that one which was deleted and created again is noticed. If the
file names another table by now, that is an edit, and rows go there from now on.
"""

import json
import logging
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from odradek.delta import plain
from odradek.pipeline.checkpoint import Checkpoint, write_file
from odradek.pipeline.file.definition import Pipeline, Sink
from odradek.pipeline.kinds.lake.files import StorageError, write_files
from odradek.pipeline.kinds.lake.order import (
    Order,
    OutOfOrder,
    check_same_table,
    fingerprint_of,
    is_written,
)
from odradek.pipeline.kinds.lake.schemas import Misfit, added, check_types, nullable
from odradek.pipeline.kinds.lake.storage import KNOWN, Access, scheme_of, without_secrets
from odradek.pipeline.kinds.lake.table import Conflict, LakeTable, Unwritable
from odradek.pipeline.kinds.sink import Batch, Refused, SinkKind, without_metadata

if TYPE_CHECKING:
    from collections.abc import Callable

ATTEMPTS = 10  # to commit a batch on top of what others write meanwhile
NOTE = "odradek-lake.json"
PARTITION_TYPES = (
    BooleanType,
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)
log = logging.getLogger("odradek.pipeline")


class LakeSinkKind(SinkKind):
    """`format` names the kind of table, `module` the library that writes it, `where` the key that says where it is."""

    format: str
    module: str
    where: str

    def __init__(
        self,
        pipeline: Pipeline,
        sink: Sink,
        partition_by: Sequence[str],
        *,
        name: str,
        place: str,
        compact: bool,
    ) -> None:
        """`name` is what the file calls the table."""
        super().__init__(pipeline, sink)
        self._partition_by, self._compact = tuple(partition_by), compact
        self._name, self.place = name, place
        self._checkpoint = Checkpoint(pipeline)
        self._opened: LakeTable | None = None

    @abstractmethod
    def _open(self) -> LakeTable:
        """The table, which need not exist."""

    @property
    def _table(self) -> LakeTable:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    @property
    def _access(self) -> Access:
        return self.pipeline.storage.access

    @property
    def destination(self) -> str:
        return f"{self.format.capitalize()} table {self.place}"

    @property
    def guarantee(self) -> str:
        return "exactly once, for all readers of the table"

    # Checking

    def plan(self, frame: DataFrame) -> DataFrame:
        rows = super().plan(frame)
        self._check_installed()
        self._check_columns(rows, self._partition_by, "partition_by")
        try:
            check_types(rows.schema)
        except Misfit as error:
            raise self.pipeline.error((*self.sink.key, "from"), str(error)) from None
        for name in self._partition_by:
            kind = rows.schema[name].dataType
            if not isinstance(kind, PARTITION_TYPES):
                problem = f"the column '{name}' is {kind.simpleString()}, which is no value to partition by"
                raise self.pipeline.error((*self.sink.key, "partition_by"), problem)
        if len(set(self._partition_by)) == len(rows.columns):
            problem = "at least one column must not be among these"
            raise self.pipeline.error((*self.sink.key, "partition_by"), problem)
        return rows

    def _check_installed(self) -> None:
        if scheme_of(self.place) not in ("", *KNOWN):
            problem = (
                f"'{self.place}' is not a place that can be written: use a path, s3://, gs:// or abfss://"
            )
            raise self.pipeline.error((*self.sink.key, self.where), problem)
        if find_spec(self.module) is None:
            problem = (
                f"{self.format.capitalize()} tables need {self.module}: pip install '.[{self.format}]' in a clone of "
                'Odradek. Or use Spark\'s own connector and its jars: connector = "spark"'
            )
            raise self.pipeline.error((*self.sink.key, "format"), problem)

    def check_outside(self, rows: DataFrame) -> None:
        """The rows fit the table, if it exists."""
        key = self.sink.key
        try:
            if self._table.look() is not None:
                self._check_partitions()
                added(self._table.schema(), self._columns(rows))
        except (Misfit, Unwritable) as error:
            raise self.pipeline.error((*key, self.where), str(error)) from None
        except Exception as error:  # of many libraries
            is_explained = isinstance(error, StorageError)
            problem = str(error) if is_explained else f"cannot read the table: {plain(error)}"
            problem = without_secrets(problem, self._access)
            raise self.pipeline.document.unreachable((*key, self.where), problem) from None

    def _check_partitions(self) -> None:
        found = self._table.partition_by()
        if self._partition_by and self._partition_by != found:
            if not found:
                raise Unwritable(
                    "the table has no partitions, and that cannot be changed: leave out partition_by"
                )
            by = ", ".join(found)
            raise Unwritable(
                f"the table is partitioned by {by}, and that cannot be changed: let partition_by say the same"
            )

    def _columns(self, rows: DataFrame) -> StructType:
        """Return the columns of planned rows that go into the table."""
        return without_metadata(rows).schema

    # Writing

    def _order(self, batch: int) -> Order:
        directory = self._directory
        query = self._checkpoint.query_id("sink", self.sink.name)
        offsets = (directory / "offsets" / str(batch)).read_text()
        return Order(query, batch, fingerprint_of(offsets))

    @property
    def _directory(self) -> Path:
        return self._checkpoint.query("sink", self.sink.name)

    def committed(self, batch: int) -> bool:
        try:
            order = self._order(batch)
        except FileNotFoundError:
            return False  # it has not begun
        with self._refusals():
            return self._has(order)

    def _has(self, order: Order) -> bool:
        """Look at the newest version of the table."""
        found = self._table.look()
        check_same_table(self._noted(), found, self.place)
        return found is not None and is_written(self._table.entry(order.query), order)

    def write(self, batch: Batch, frame: DataFrame) -> int:
        order = self._order(batch.number)
        with self._refusals():
            self._fit(self._columns(frame))
            if (commit := self._computed(frame)) is not None:
                self._commit(commit, order)
        if self._compact:
            self._try_to_compact()
        return 0

    def _fit(self, columns: StructType) -> None:
        """Create the table, or add columns to it. Each is a commit of its own, and repeated it does nothing."""
        for _ in range(ATTEMPTS):
            try:
                found = self._table.look()
                if found is None:
                    self._table.create(nullable(columns), self._partition_by)
                    found = self._table.look()
                    assert found is not None
                self._note(found)
                self._check_partitions()
                fresh = added(self._table.schema(), columns)
                if not fresh:
                    return
                self._table.add_columns(fresh)
            except Conflict:
                continue
        raise Conflict("others change the table's columns all the time")

    @abstractmethod
    def _computed(self, frame: DataFrame) -> "Callable[[Order], None] | None":
        """Compute the rows, once; returns the commit that puts them into the table, or None if there are none."""

    def _commit(self, commit: "Callable[[Order], None]", order: Order) -> None:
        columns = self._table.columns()
        for attempt in range(ATTEMPTS):
            try:
                commit(order)
                return
            except Conflict:
                if self._has(order):
                    return
                changed = self._table.columns()[: len(columns)] != columns
                if changed or attempt == ATTEMPTS - 1:
                    raise  # `changed`: the rows were computed for other columns, so the batch runs again

    def _try_to_compact(self) -> None:
        """The batch is written, whatever happens here; it is tried again once there are as many new files."""
        try:
            self._table.compact()
        except Exception as error:
            reason = without_secrets(str(error), self._access)
            log.warning(
                "%s: could not merge the small files of %s, and will try again after some batches: %s",
                self.sink.name,
                self.place,
                reason,
            )

    def _aligned(self, rows: DataFrame, deleted: str | None = None) -> DataFrame:
        """The rows with the columns of the table, and the one that says which rows delete: these need only a key."""
        given = {name.lower(): name for name in rows.columns}
        columns = []
        for field in self._table.schema().fields:
            name = given.get(field.name.lower())
            column = F.lit(None) if name is None else F.col(f"`{name}`")
            column = column.cast(field.dataType)
            if not field.nullable:
                text = (
                    f"the column '{field.name}' of the table {self.place} is NOT NULL, and the row's is null"
                )
                is_missing = column.isNull() if deleted is None else column.isNull() & ~F.col(deleted)
                failed = F.raise_error(F.lit(text)).cast(field.dataType)
                column = F.when(is_missing, failed).otherwise(column)
            columns.append(column.alias(field.name))
        return rows.select(*columns, *([] if deleted is None else [deleted]))

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """What is refused stops the run; no message has a secret."""
        try:
            yield
        except (OutOfOrder, Misfit, Unwritable) as error:
            raise Refused(str(error)) from None
        except Exception as error:
            if (text := without_secrets(str(error), self._access)) != str(error):
                raise StorageError(text) from None
            raise

    # What the checkpoint remembers

    def _noted(self) -> str | None:
        """The id of the table that it has written to, if the file still names that one."""
        try:
            found = json.loads((self._directory / NOTE).read_text())
        except FileNotFoundError:
            return None
        return str(found["table"]) if found.get("name", self._name) == self._name else None

    def _note(self, table: str) -> None:
        if self._noted() is None:
            write_file(self._directory / NOTE, json.dumps({"table": table, "name": self._name}))


def appended(table: LakeTable, rows: DataFrame) -> "Callable[[Order], None] | None":
    """Write the files of a batch."""
    files = write_files(rows, table.target())
    return (lambda order: table.append(files, order)) if files else None
