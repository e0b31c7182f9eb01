"""Tasks write the rows of a batch as Parquet files; the driver gets one row of facts for each file.

A file has a name of its own, and nobody reads it before the driver's commit names it. So a task may be killed, repeated
or run twice at a time: the driver hears of the files of one attempt, and the others stay unseen.

Rows come sorted by the columns that partition a table, so a task writes one file at a time. It gathers rows before it
writes them: a row group for each of Spark's batches of 10,000 rows would make files large and slow.
"""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.pipeline.kinds.lake.storage import file_system, is_local, without_secrets

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

FACTS = "path STRING, bytes BIGINT, rows BIGINT, partition STRING, stats STRING"
ROW_GROUP_BYTES = 64 << 20  # of rows in memory
FILE_BYTES = 256 << 20  # a file that has become larger is the last one but one
LONGEST_STATISTIC = (
    64  # characters of a string; a longer one would have to be cut, and its maximum rounded up
)
COLUMNS_WITH_STATISTICS = 32
MILLISECOND = timedelta(milliseconds=1)


class StorageError(Exception):
    """A file could not be written. Not the fault of a row."""


@dataclass(frozen=True)
class Target:
    """The place and the way for tasks to write. `schema` is Arrow's, of a whole row; `partition_by` are columns of
    it. Files have them only if `keeps_partition_columns`.
    """

    place: str
    access: Mapping[str, str]
    schema: "pa.Schema"
    partition_by: tuple[str, ...]
    keeps_partition_columns: bool


@dataclass(frozen=True)
class DataFile:
    """`path` is relative to the table. `partition` and `stats` are by column."""

    path: str
    bytes: int
    rows: int
    partition: dict[str, str | None]
    stats: dict[str, Any]


def write_files(rows: "DataFrame", target: Target) -> list[DataFile]:
    """Run the rows' plan, once."""
    if target.partition_by:
        rows = rows.sortWithinPartitions(*(f"`{name}`" for name in target.partition_by))
    found = rows.mapInArrow(lambda batches: _facts(write_task(batches, target)), FACTS).collect()
    return [
        DataFile(one.path, one.bytes, one.rows, json.loads(one.partition), json.loads(one.stats))
        for one in found
    ]


def _facts(files: Iterator[DataFile]) -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa

    for one in files:
        row = {
            "path": one.path,
            "bytes": one.bytes,
            "rows": one.rows,
            "partition": json.dumps(one.partition),
            "stats": json.dumps(one.stats),
        }
        yield pa.RecordBatch.from_pylist([row])


def write_task(batches: Iterator["pa.RecordBatch"], target: Target) -> Iterator[DataFile]:
    writer = _Writer(target)
    for batch in batches:
        for values, part in _by_partition(batch, target.partition_by):
            yield from writer.write(values, part)
    yield from writer.finish()


def _by_partition(
    batch: "pa.RecordBatch", partition_by: tuple[str, ...]
) -> Iterator[tuple[tuple[Any, ...], "pa.RecordBatch"]]:
    """Runs of rows of one partition, in their order."""
    if not partition_by:
        yield (), batch
        return
    keys = list(zip(*(batch.column(name).to_pylist() for name in partition_by), strict=True))
    start = 0
    for end in range(1, len(keys) + 1):
        if end == len(keys) or keys[end] != keys[start]:
            yield keys[start], batch.slice(start, end - start)
            start = end


class _Writer:
    """The file that a task is writing, if any."""

    def __init__(self, target: Target) -> None:
        import pyarrow as pa

        self._target = target
        dropped = () if target.keeps_partition_columns else target.partition_by
        self._schema = pa.schema([one for one in target.schema if one.name not in dropped])
        self._files, self._root = file_system(target.place, target.access)
        self._values: tuple[Any, ...] = ()
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._name = ""
        self._stream: Any = None
        self._parquet: Any = None
        self._footer: list[Any] = []

    def write(self, values: tuple[Any, ...], batch: "pa.RecordBatch") -> Iterator[DataFile]:
        if values != self._values:
            yield from self.finish()
            self._values = values
        self._gathered.append(batch)
        self._gathered_bytes += batch.nbytes
        if self._gathered_bytes >= ROW_GROUP_BYTES and self._flush() >= FILE_BYTES:
            yield from self.finish()

    def finish(self) -> Iterator[DataFile]:
        if not any(batch.num_rows for batch in self._gathered) and self._parquet is None:
            self._gathered.clear()
            return
        self._flush()
        try:
            self._parquet.close()
            size = self._stream.tell()
            self._stream.close()
        except OSError as error:
            raise self._failure(error) from None
        self._parquet = None
        (footer,) = self._footer
        names = self._target.partition_by
        partition = {name: text_of(value) for name, value in zip(names, self._values, strict=True)}
        yield DataFile(self._name, size, footer.num_rows, partition, statistics(footer, self._schema))

    def _flush(self) -> int:
        """Write what is gathered as a row group; returns the size of the file so far."""
        import pyarrow as pa

        arrays = [[batch.column(name) for batch in self._gathered] for name in self._schema.names]
        columns = [
            pa.chunked_array(found, found[0].type if found else field.type).cast(field.type)
            for found, field in zip(arrays, self._schema, strict=True)
        ]
        table = pa.Table.from_arrays(columns, schema=self._schema)
        self._gathered.clear()
        self._gathered_bytes = 0
        try:
            if self._parquet is None:
                self._open()
            if table.num_rows:
                self._parquet.write_table(table, row_group_size=table.num_rows)
            return int(self._stream.tell())
        except OSError as error:
            raise self._failure(error) from None

    def _open(self) -> None:
        from pyarrow import parquet

        self._name, self._footer = f"part-{uuid.uuid4()}.parquet", []
        if is_local(self._target.place):
            Path(self._root).mkdir(parents=True, exist_ok=True)
        self._stream = self._files.open_output_stream(f"{self._root}/{self._name}")
        self._parquet = parquet.ParquetWriter(
            self._stream, self._schema, store_schema=False, metadata_collector=self._footer
        )

    def _failure(self, error: OSError) -> StorageError:
        reason = without_secrets(error.strerror or str(error), self._target.access)
        return StorageError(f"cannot write {self._name}: {reason}")


# What is known of a file


def text_of(value: Any) -> str | None:
    """The value of a partition as Delta writes it."""
    if value is None or isinstance(value, str):
        return value or None  # Delta takes an empty string for null
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        utc = value if value.tzinfo is None else value.astimezone(UTC)
        return utc.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value.isoformat() if isinstance(value, date) else str(value)


def statistics(footer: Any, schema: "pa.Schema") -> dict[str, Any]:
    """Delta's, of top-level columns: readers use them to leave files out."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    chosen = set(schema.names[:COLUMNS_WITH_STATISTICS])
    for position in range(footer.num_columns):
        groups = [footer.row_group(number).column(position) for number in range(footer.num_row_groups)]
        name = footer.schema.column(position).path
        known = [one.statistics for one in groups]
        if name not in chosen or "." in name or not all(one is not None for one in known):
            continue  # a name with a dot may also be the path of a field in a struct
        if all(one.has_null_count for one in known):
            nulls[name] = sum(one.null_count for one in known)
        valued = [one for one in known if one.num_values]
        if valued and all(one.has_min_max for one in valued) and (pair := _bounds(valued)) is not None:
            low[name], high[name] = pair
    return {"numRecords": footer.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def _bounds(groups: Sequence[Any]) -> tuple[Any, Any] | None:
    """Return the least and the greatest value as JSON, or None where that could not be exact."""
    try:
        least, most = min(one.min for one in groups), max(one.max for one in groups)
        return _as_json(least, most)
    except (OverflowError, ValueError):  # a year that Python does not have: Spark's end at 294247
        return None


def _as_json(least: Any, most: Any) -> tuple[Any, Any] | None:
    if isinstance(least, (bool, float)):
        return None
    if isinstance(least, datetime):
        return _milliseconds(least), _milliseconds(most + MILLISECOND)
    if isinstance(least, date):
        return least.isoformat(), most.isoformat()
    if isinstance(least, str) and max(len(least), len(most)) <= LONGEST_STATISTIC:
        return least, most
    return (least, most) if isinstance(least, int) else None


def _milliseconds(moment: datetime) -> str:
    text = moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text if moment.tzinfo is None else f"{text}Z"
