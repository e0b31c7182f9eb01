"""The sources of a replay: the archive of a topic, or Parquet files of any origin."""

import glob
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from odradek.archive.failures import Final
from odradek.archive.layout import ArchivedFile, Range
from odradek.archive.rows import HEADERS, read_range
from odradek.archive.tables import Table
from odradek.archiving.replay import Part

COLUMNS: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS,
    "timestamp": pa.timestamp("us", "UTC"),
    "partition": pa.int32(),
}


class ArchivedTopic:
    """A part is a partition; its positions are the offsets of the archived topic. A topic that is created again has
    another id, and gets everything again."""

    def __init__(self, table: Table) -> None:
        self._location, self.snapshot = table.location, table.snapshot()

    @property
    def name(self) -> str:
        return self.snapshot.topic

    @property
    def partitions(self) -> int:
        return len(self.snapshot.ends)

    @property
    def topic_id(self) -> UUID:
        return self.snapshot.topic_id

    def parts(self, target_id: UUID) -> list[Part]:
        return [self._part(number, target_id) for number in sorted(self.snapshot.ends)]

    def _part(self, partition: int, target_id: UUID) -> Part:
        snapshot, end = self.snapshot, self.snapshot.ends[partition]

        def read(position: int) -> Iterator[pa.RecordBatch]:
            return read_range(self._location, snapshot, Range(partition, position, end))

        def after(_: int, rows: pa.Table) -> int:
            return int(rows.column("offset")[rows.num_rows - 1].as_py()) + 1

        sink = f"replay-{snapshot.topic_id.hex[:12]}-{target_id.hex[:12]}-{partition}"
        return Part(sink, f"partition {partition}", snapshot.start_of(partition), end, read, after)


class ParquetFiles:
    """Files in the order of their names, as one part; positions count their rows. Other files, or files that have
    changed, are another replay."""

    name = "files"
    topic_id = None

    def __init__(self, patterns: Sequence[str]) -> None:
        self._paths = sorted(
            {path for one in patterns for path in glob.glob(one, recursive=True) if Path(path).is_file()}
        )
        if not self._paths:
            raise Final(f"no file matches {' or '.join(patterns)}")
        footers = [_checked(path) for path in self._paths]
        self._counts = [one.rows for one in footers]
        self._facts = [
            f"{Path(path).absolute()} {one.digest}" for path, one in zip(self._paths, footers, strict=True)
        ]
        there = {name for one in footers for name in one.columns}
        self._columns = [name for name in COLUMNS if name in there]
        self.partitions = 1

    def parts(self, target_id: UUID) -> list[Part]:
        digest = hashlib.sha256("\n".join([*self._facts, target_id.hex]).encode()).hexdigest()[:24]
        return [Part(f"replay-files-{digest}", "row", 0, sum(self._counts), self._read, _counted)]

    def _read(self, position: int) -> Iterator[pa.RecordBatch]:
        for path, count in zip(self._paths, self._counts, strict=True):
            if position < count:
                yield from _rows(path, position, self._columns)
            position = max(0, position - count)


def _counted(position: int, rows: pa.Table) -> int:
    return position + int(rows.num_rows)


class _Footer(NamedTuple):
    """What the end of a file says of it. The digest changes with the sizes and the least and largest values of columns,
    so it tells apart files of one size, too."""

    rows: int
    columns: list[str]
    digest: str


def _checked(path: str) -> _Footer:
    """Return the footer of a file, which must have values."""
    try:
        with pq.ParquetFile(path) as file:
            names, rows = file.schema_arrow.names, int(file.metadata.num_rows)
    except pa.ArrowInvalid as error:
        raise Final(f"{path} is not a Parquet file: {error}") from None
    if "value" not in names:
        raise Final(f"{path} has no column 'value'; its columns are {', '.join(names)}")
    for name in COLUMNS:
        if names.count(name) > 1:
            raise Final(f"{path} has {names.count(name)} columns '{name}': leave one")
    return _Footer(rows, names, _digest(path))


def _digest(path: str) -> str:
    """Return the digest of the size and the footer. A Parquet file ends with the footer's length and four letters."""
    size = Path(path).stat().st_size
    with open(path, "rb") as file:
        file.seek(-8, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
        file.seek(-8 - length, os.SEEK_END)
        return hashlib.sha256(b"%d " % size + file.read(length)).hexdigest()


def _rows(path: str, skipped: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rows of a file with these columns, which are null where the file has none."""
    with pq.ParquetFile(path) as file:
        there = [name for name in names if name in file.schema_arrow.names]
        for batch in file.iter_batches(columns=there):
            if skipped < batch.num_rows:
                yield _converted(batch.slice(skipped), path, names)
            skipped = max(0, skipped - batch.num_rows)


def _converted(batch: pa.RecordBatch, path: str, names: Sequence[str]) -> pa.RecordBatch:
    columns = [
        _cast(path, name, batch.column(name))
        if name in batch.schema.names
        else pa.nulls(batch.num_rows, COLUMNS[name])
        for name in names
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(names))


def _cast(path: str, name: str, column: Any) -> Any:
    """A time without a zone is one of UTC."""
    try:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
        return column.cast(COLUMNS[name])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise Final(f"{path}: column '{name}' is {column.type}, it must be {COLUMNS[name]}") from None


def retention_warning(
    files: tuple[ArchivedFile, ...], target: str, retention_ms: int | None, now_ms: int
) -> str | None:
    """A sentence where the target would delete records as soon as they are replayed."""
    if retention_ms is None:
        return None
    oldest_kept_ms = now_ms - retention_ms
    rows = sum(one.rows for one in files if (one.max_timestamp_ms or 0) < oldest_kept_ms)
    if not rows:
        return None
    return (
        f"topic {target} deletes records after {retention_ms} ms, and {rows} of the archive's records or more are "
        f"older: it would delete them at once. 'odradek config alter topic {target} --set retention.ms=-1' keeps them"
    )
