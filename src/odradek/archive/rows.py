"""Rows of an archive as Arrow: their columns, how a file is written, and how a range is read in order."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from odradek.archive.failures import ArchiveError
from odradek.archive.layout import ArchivedFile, NewFile, Range, Snapshot, file_name
from odradek.archive.location import Location, advice
from odradek.delta import plain

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("offset", pa.int64()),
        ("partition", pa.int32()),
    ]
)
MOST_GROUP_ROWS = 128 * 1024
MOST_GROUP_BYTES = 64 * 1024 * 1024
FILE_BYTES = 256 * 1024 * 1024  # a file ends once it is that large
WITH_STATISTICS = ["offset", "timestamp", "partition"]


@dataclass
class _Found:
    """Counts and bounds of a file's rows."""

    rows: int = 0
    first: int = 0
    last: int = 0
    times_us: list[int] = field(default_factory=list)

    def take(self, table: pa.Table) -> None:
        offsets, times = table.column("offset"), pc.min_max(table.column("timestamp").cast(pa.int64()))
        if not self.rows:
            self.first = offsets[0].as_py()
        self.last = offsets[len(offsets) - 1].as_py()
        self.times_us += [times["min"].as_py(), times["max"].as_py()]
        self.rows += table.num_rows

    def file(self, path: str, range_: Range, size: int) -> NewFile:
        earliest_ms, latest_ms = min(self.times_us) // 1000, -(-max(self.times_us) // 1000)
        return NewFile(path, range_, self.rows, size, self.first, self.last, earliest_ms, latest_ms)


class FileWriter:
    """One file, written in row groups of a fair size. It is complete, and on disk, once `finish` has returned."""

    def __init__(self, location: Location, path: str) -> None:
        self._location, self._path = location, path
        self._filesystem = location.filesystem()
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._found = _Found()
        try:
            self._stream = self._filesystem.open_output_stream(path)
        except OSError as error:
            raise self._refused(error) from None
        try:
            self._writer = self._begun()
        except OSError as error:
            self._delete(self._stream.close)
            raise self._refused(error) from None

    def _begun(self) -> Any:
        """The writer, which has written the first bytes of the file."""
        return pq.ParquetWriter(
            self._stream,
            SCHEMA,
            compression="zstd",
            compression_level=1,
            use_dictionary=["partition", "timestampType"],
            write_statistics=WITH_STATISTICS,
        )

    @property
    def size(self) -> int:
        return int(self._stream.tell())

    @property
    def rows(self) -> int:
        return self._found.rows + self._waiting_rows

    def append(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= MOST_GROUP_ROWS or self._waiting_bytes >= MOST_GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting, SCHEMA)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        self._found.take(table)
        try:
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        except OSError as error:
            raise self._refused(error) from None

    def finish(self, range_: Range) -> NewFile:
        self._write_group()
        try:
            self._writer.close()
            size = self.size
            self._stream.close()
            if self._location.local is not None:
                _sync_file(str(self._location.local / self._path))
        except OSError as error:
            raise self._refused(error) from None
        return self._found.file(self._path, range_, size)

    def discard(self) -> None:
        """Delete what was written, which is of no use now. A file that cannot be deleted is deleted by a vacuum."""
        self._delete(self._writer.close, self._stream.close)

    def _delete(self, *closing: Callable[[], Any]) -> None:
        works: list[Callable[[], Any]] = [*closing, partial(self._filesystem.delete_file, self._path)]
        for work in works:
            with suppress(OSError, pa.ArrowInvalid):
                work()

    def _refused(self, error: OSError) -> ArchiveError:
        return ArchiveError(
            f"cannot write {self._location.absolute(self._path)}: {plain(error)}{advice(error)}"
        )


def _sync_file(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def write_file(location: Location, range_: Range, batches: Iterable[pa.RecordBatch]) -> NewFile | None:
    """All the batches in one file; None if they have no rows."""
    writer = FileWriter(location, file_name(range_))
    try:
        for batch in batches:
            writer.append(batch)
        if writer.rows:
            return writer.finish(range_)
    except BaseException:
        writer.discard()
        raise
    writer.discard()
    return None


def read_files(location: Location, paths: Sequence[str], range_: Range) -> Iterator[pa.RecordBatch]:
    """The rows of these files with offsets in a range, in order. The files are in order."""
    filesystem = location.filesystem()
    for path in paths:
        try:
            with filesystem.open_input_file(path) as source, closing(pq.ParquetFile(source)) as file:
                for number in _groups_with(file, range_):
                    for batch in file.iter_batches(row_groups=[number]):
                        yield from _within(batch, range_)
        except FileNotFoundError:
            raise vacuumed(location, path) from None
        except (OSError, pa.ArrowInvalid) as error:
            raise unreadable(location, path, error) from None


def unreadable(location: Location, path: str, error: Exception) -> ArchiveError:
    return ArchiveError(
        f"cannot read {location.absolute(path)}: {plain(error)}. If the file is damaged, restore it from a backup of "
        "the archive"
    )


def vacuumed(location: Location, path: str) -> ArchiveError:
    return ArchiveError(
        f"{location.absolute(path)} is not there any more: it was replaced, and deleted by a vacuum while it was to be "
        "read. Begin again with the archive's newest version"
    )


def _groups_with(file: Any, range_: Range) -> Iterator[int]:
    """The row groups that may have offsets of the range."""
    column = SCHEMA.names.index("offset")
    metadata = file.metadata
    places = [at for at in range(metadata.num_columns) if metadata.schema.column(at).path == "offset"]
    place = places[0] if places else column
    for number in range(metadata.num_row_groups):
        bounds = metadata.row_group(number).column(place).statistics
        if (
            bounds is None
            or not bounds.has_min_max
            or (bounds.max >= range_.start and bounds.min < range_.end)
        ):
            yield number


def _within(batch: pa.RecordBatch, range_: Range) -> Iterator[pa.RecordBatch]:
    offsets = batch.column("offset")
    count = len(offsets)
    if count == 0:
        return
    if offsets[0].as_py() >= range_.start and offsets[count - 1].as_py() < range_.end:
        yield batch
        return
    kept = batch.filter(pc.and_(pc.greater_equal(offsets, range_.start), pc.less(offsets, range_.end)))
    if kept.num_rows:
        yield kept


def read_range(location: Location, snapshot: Snapshot, range_: Range) -> Iterator[pa.RecordBatch]:
    """The archived rows of a partition in a range, in order."""
    paths = [one.path for one in snapshot.files_of(*range_)]
    return read_files(location, paths, range_)


def merge(location: Location, files: Sequence[ArchivedFile], range_: Range) -> NewFile | None:
    """One file with the rows of several neighbours."""
    return write_file(location, range_, read_files(location, [one.path for one in files], range_))
