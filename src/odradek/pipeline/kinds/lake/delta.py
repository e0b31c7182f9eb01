"""A Delta table of delta-rs.

A commit carries two transaction ids of Delta (`txn` actions): the query's id with the number of the batch, which is
what Spark's own Delta sink writes, too, so that either continues what the other began; and the same id with `.offsets`,
whose number has the fingerprint. delta-rs refuses a commit if another one with these ids came first.
"""

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from odradek.delta import DeltaLook, plain
from odradek.pipeline.kinds.lake.files import DataFile, StorageError, Target
from odradek.pipeline.kinds.lake.order import Entry, Order, entry_of, mark_of
from odradek.pipeline.kinds.lake.storage import Access, as_delta_opens, delta_options, file_system
from odradek.pipeline.kinds.lake.table import SMALL_FILES, Conflict, LakeTable, Unwritable

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from pyarrow.fs import FileSystem

    from odradek.pipeline.file.definition import Upsert

FINGERPRINT = ".offsets"
DELETED = "__deleted"
SMALL_BYTES = 32 << 20
EXPIRY = "delta.setTransactionRetentionDuration"
MAPPING = "delta.columnMapping.mode"
CONSTRAINT = "delta.constraints."
BY_EXPRESSION = ("delta.generationExpression", "delta.invariants", "delta.identity.start")


class DeltaLakeTable(LakeTable):
    def __init__(self, place: str, access: Access) -> None:
        self.place, self._access, self._options = place, access, delta_options(access)
        self._looks = DeltaLook(place, self._options, self._file_system)
        self._written = SMALL_FILES  # files since small ones were counted

    # Looking

    def look(self) -> str | None:
        with _explained("read the table"):
            found = self._looks.again()
        return None if found is None else str(found.metadata().id)

    def _file_system(self) -> "FileSystem":
        """pyarrow's own: other threads go on while it waits, which they do not for delta-rs's."""
        from pyarrow.fs import SubTreeFileSystem

        files, root = file_system(as_delta_opens(self.place), self._access)
        return SubTreeFileSystem(root, files)

    @property
    def _open(self) -> "DeltaTable":
        return self._looks.table

    def schema(self) -> StructType:
        schema = StructType.fromJson(json.loads(self._open.schema().to_json()))
        refuse(self._open.metadata().configuration, schema)
        return schema

    def columns(self) -> list[Any]:
        """With what partitions the table, too: files lack those columns."""
        return [self.partition_by(), *self.schema().fields]

    def partition_by(self) -> tuple[str, ...]:
        return tuple(self._open.metadata().partition_columns)

    def entry(self, query: str) -> Entry | None:
        batch = self._open.transaction_version(query)
        if batch is None:
            return None
        return entry_of(batch, self._open.transaction_version(query + FINGERPRINT))

    # Changing

    def create(self, schema: StructType, partition_by: Sequence[str]) -> None:
        from deltalake import DeltaTable, Schema

        with _explained("create the table"):
            DeltaTable.create(
                self.place,
                Schema.from_json(schema.json()),
                mode="ignore",
                partition_by=list(partition_by),
                storage_options=self._options,
            )

    def add_columns(self, columns: Sequence[StructField]) -> None:
        from deltalake import Schema

        fields = Schema.from_json(StructType(list(columns)).json()).fields
        with _explained("change the table"):
            self._open.alter.add_columns(fields, commit_properties=_properties())

    def target(self) -> Target:
        arrow = to_arrow_schema(self.schema(), timezone="UTC")
        place = as_delta_opens(self.place)
        return Target(place, self._access, arrow, self.partition_by(), keeps_partition_columns=False)

    def append(self, files: Sequence[DataFile], order: Order) -> None:
        from deltalake.transaction import AddAction

        modified_ms = _now_ms()
        actions = [
            AddAction(one.path, one.bytes, one.partition, modified_ms, True, json.dumps(one.stats))
            for one in files
        ]
        with _explained("change the table"):
            self._open.create_write_transaction(
                actions,
                "append",
                self._open.schema(),
                list(self.partition_by()),
                commit_properties=_properties(order),
            )
        self._written += len(files)

    def merge(self, rows: "pa.Table", upsert: "Upsert", order: Order) -> None:
        written = {one.lower(): one for one in rows.column_names if one != DELETED}
        newer = is_newer([written[name.lower()] for name in upsert.order_by])
        key = [written[name.lower()] for name in upsert.key]
        deleted = f"s.`{DELETED}`"
        is_kept = f"NOT {deleted}"
        columns = {f"t.{quoted(name)}": f"s.{quoted(name)}" for name in written.values()}
        with _explained("change the table"):
            merger = self._open.merge(
                rows,
                " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in key),
                source_alias="s",
                target_alias="t",
                streamed_exec=False,  # then files without a key of this batch are left alone
                commit_properties=_properties(order),
            )
            merger.when_matched_delete(" AND ".join([deleted, *newer])).when_matched_update(
                columns, " AND ".join([is_kept, *newer])
            ).when_not_matched_insert(columns, is_kept).execute()
        self._written += 1

    def compact(self) -> int:
        if self._written < SMALL_FILES:
            return 0
        self._written = 0
        self._open.update_incremental()
        if _small(self._open) < SMALL_FILES:
            return 0
        with _explained("change the table"):
            done = self._open.optimize.compact(commit_properties=_properties())
        return int(done["numFilesRemoved"])


def _small(table: "DeltaTable") -> int:
    import pyarrow as pa

    sizes = pa.table(table.get_add_actions(flatten=True)).column("size_bytes").to_pylist()
    return sum(size < SMALL_BYTES for size in sizes)


def _properties(order: Order | None = None) -> "CommitProperties":
    from deltalake import CommitProperties, Transaction

    if order is None:
        return CommitProperties(max_commit_retries=0)
    known = [
        Transaction(order.query, order.batch),
        Transaction(order.query + FINGERPRINT, mark_of(order)),
    ]
    return CommitProperties(max_commit_retries=0, app_transactions=known)


class _explained:
    """Turns what delta-rs raises into a `Conflict` if a commit was refused, and otherwise into one line."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        from deltalake.exceptions import CommitFailedError, DeltaError

        if isinstance(error, CommitFailedError):
            raise Conflict(str(error)) from None
        if isinstance(error, (DeltaError, OSError)):
            raise StorageError(f"cannot {self._what}: {plain(error)}") from None


def is_newer(order_by: Sequence[str]) -> list[str]:
    """The condition under which a row `s` replaces the row `t` of a table; none if later batches always do."""
    if not order_by:
        return []
    ours, theirs = f"s.{quoted(order_by[0])}", f"t.{quoted(order_by[0])}"
    first = f"{theirs} IS NULL OR {ours} > {theirs}"
    equal = f"{ours} = {theirs}"
    (rest,) = is_newer(order_by[1:]) or ["true"]
    return [f"({first} OR ({equal} AND {rest}))"]


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def refuse(configuration: dict[str, str], schema: StructType) -> None:
    """`Unwritable` if files that we write would not follow a rule of the table."""
    if configuration.get(MAPPING, "none") != "none":
        raise Unwritable(f"the table maps its columns ({MAPPING}), which this sink does not do")
    if EXPIRY in configuration:
        raise Unwritable(
            f"the table forgets transactions ({EXPIRY}), and with them which batches it has: unset that property"
        )
    if rules := [name for name in configuration if name.startswith(CONSTRAINT)]:
        raise Unwritable(f"the table has constraints, which this sink does not check: {', '.join(rules)}")
    for field in schema.fields:
        if any(rule in (field.metadata or {}) for rule in BY_EXPRESSION):
            raise Unwritable(
                f"the table computes or checks its column '{field.name}' itself, which this sink does not"
            )


def _now_ms() -> int:
    return int(time.time() * 1000)
