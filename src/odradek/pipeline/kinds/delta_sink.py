"""A Delta table as a sink, by delta-rs: rows are appended, or replace those of their key (`mode = "upsert"`).

An upsert needs an order, because several rows of a batch may have the same key, and only the last one counts. That is
the order of the columns `order_by`; or of the records that the rows come from, as long as the rows still have
`_timestamp`, `_partition` and `_offset`; which also decides between rows that `order_by` does not tell apart. Groups
need none: a batch has one row of each. With `order_by`, a row that is older than the one in the table changes nothing;
without, the later batch wins.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from odradek.pipeline.file.definition import DeltaSink, Pipeline, Sink, Upsert
from odradek.pipeline.kinds.lake.delta import DELETED, DeltaLakeTable
from odradek.pipeline.kinds.lake.order import Order
from odradek.pipeline.kinds.lake.storage import local_or_uri
from odradek.pipeline.kinds.lake.table import LakeTable
from odradek.pipeline.kinds.lake_sink import LakeSinkKind, appended
from odradek.pipeline.kinds.plain_types import PLAIN
from odradek.pipeline.kinds.sink import Refused, without_metadata
from odradek.pipeline.kinds.topic_sink import SINK_MARK
from odradek.pipeline.rows.plans import is_grouped
from odradek.pipeline.rows.transforms import plain

if TYPE_CHECKING:
    import pyarrow as pa

RECORD_ORDER = ("_timestamp", "_partition", "_offset")
RANK = "__rank"


class DeltaSinkKind(LakeSinkKind):
    format, module, where = "delta", "deltalake", "path"

    def __init__(self, pipeline: Pipeline, sink: Sink, target: DeltaSink) -> None:
        place = local_or_uri(pipeline.path(target.path))
        super().__init__(
            pipeline, sink, target.partition_by, name=target.path, place=place, compact=target.compact
        )
        self._upsert = target.upsert

    def _open(self) -> LakeTable:
        return DeltaLakeTable(self.place, self.pipeline.storage.access)

    def _computed(self, frame: DataFrame) -> Callable[[Order], None] | None:
        if self._upsert is None:
            return appended(self._table, self._aligned(frame))
        upsert, rows = self._upsert, self._last_rows(frame, self._upsert)
        return (lambda order: self._table.merge(rows, upsert, order)) if rows.num_rows else None

    # Upserts

    def plan(self, frame: DataFrame) -> DataFrame:
        """With `upsert`, add what the order needs, and whether a row deletes."""
        rows = super().plan(frame)
        if self._upsert is None:
            return rows
        upsert = self._upsert
        self._check_comparable(rows, upsert.key, "key")
        self._check_comparable(rows, upsert.order_by, "order_by")
        deleted = F.lit(False) if not upsert.delete_when else self._condition(frame, upsert.delete_when)
        columns = {name: F.col(f"`{name}`") for name in rows.columns}
        columns |= {name: self._not_null(rows, name) for name in upsert.key}
        columns |= {name: F.col(name) for name in self._record_order(frame, upsert)}
        columns[DELETED] = deleted
        return frame.select(*(column.alias(name) for name, column in columns.items()))

    def _check_comparable(self, rows: DataFrame, names: Sequence[str], key: str) -> None:
        self._check_columns(rows, names, key)
        for name in names:
            kind = rows.schema[name].dataType
            if not isinstance(kind, PLAIN):
                problem = (
                    f"the column '{name}' is {kind.simpleString()}, which cannot be compared: name others"
                )
                raise self.pipeline.error((*self.sink.key, key), problem)

    def _record_order(self, frame: DataFrame, upsert: Upsert) -> tuple[str, ...]:
        """The columns that say in which order the records were; none if they are not there, and not needed."""
        if all(frame.columns.count(name) == 1 for name in RECORD_ORDER):
            return RECORD_ORDER
        if upsert.order_by or is_grouped(frame):
            return ()
        problem = (
            "an upsert needs an order, because the last row of a key counts: keep the columns _timestamp, _partition "
            'and _offset in the rows, or name columns of theirs, order_by = ["changed_at"]'
        )
        raise self.pipeline.error((*self.sink.key, "mode"), problem)

    def _condition(self, frame: DataFrame, condition: str) -> Column:
        key = (*self.sink.key, "delete_when")
        try:
            kind = frame.select(F.expr(condition).alias("met")).dtypes[0][1]
        except (AnalysisException, ParseException) as error:
            raise self.pipeline.error(key, plain(error)) from None
        if kind != "boolean":
            raise self.pipeline.error(key, f"the condition is {kind}, it must be boolean")
        return F.coalesce(F.expr(condition), F.lit(False))

    def _not_null(self, rows: DataFrame, name: str) -> Column:
        text = f"{SINK_MARK}'{self.sink.name}': the key column '{name}' is null, and an upsert needs a key"
        column, kind = F.col(f"`{name}`"), rows.schema[name].dataType
        return F.when(column.isNull(), F.raise_error(F.lit(text)).cast(kind)).otherwise(column)

    def _columns(self, rows: DataFrame) -> StructType:
        return without_metadata(rows).drop(DELETED).schema

    def readable(self, row: dict[str, object]) -> dict[str, object]:
        return {name: value for name, value in row.items() if name != DELETED}

    def _last_rows(self, frame: DataFrame, upsert: Upsert) -> "pa.Table":
        """The last row of each key of a batch, in the driver."""
        order = upsert.order_by + tuple(name for name in RECORD_ORDER if name in frame.columns)
        last = frame
        if order:
            newest = [F.col(f"`{name}`").desc_nulls_last() for name in order]
            window = Window.partitionBy(*(f"`{name}`" for name in upsert.key)).orderBy(*newest)
            last = frame.withColumn(RANK, F.row_number().over(window)).where(F.col(RANK) == 1).drop(RANK)
        found = self._aligned(last, deleted=DELETED).toArrow()
        if not order and _distinct(found, upsert.key) < found.num_rows:
            raise Refused(
                f"a batch has several rows of one key ({', '.join(upsert.key)}), and nothing says which is the last: "
                "let the key be what the rows are grouped by, or name columns, order_by"
            )
        return found


def _distinct(rows: "pa.Table", key: Sequence[str]) -> int:
    """How many keys there are. The table may write their names in upper case."""
    names = {name.lower(): name for name in rows.column_names}
    return int(rows.group_by([names[name.lower()] for name in key]).aggregate([]).num_rows)
