"""A segment: one file of batches from a base offset on, and its indexes.

The indexes are hints. A lookup goes to the position that the index names and checks that the batch there is the one
that the entry means; if not, the index is rebuilt from the batches. So a damaged index costs a scan, but never gives a
wrong result.
"""

from collections.abc import Iterator
from contextlib import ExitStack

from odradek.records.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader
from odradek.records.walk import header_at, walk
from odradek.storage.config import LogConfig
from odradek.storage.disk.files import File, Files
from odradek.storage.segments.indexes import (
    MAX_RELATIVE_OFFSET,
    OFFSET_ENTRY,
    TIME_ENTRY,
    Index,
    TransactionIndex,
)

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

LOOKUP_BYTES = 8 << 10  # read at a time where a batch is looked for from an index entry on
SCAN_BYTES = 256 << 10  # for a scan of all batches


def file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def remove_files(files: Files, directory: str, base_offset: int) -> None:
    """Remove the remains of a segment that could not be created."""
    for suffix in SEGMENT_SUFFIXES:
        files.file(f"{directory}/{file_name(base_offset, suffix)}").remove()


class Segment:
    """`size` is where the next batch goes. An opened segment knows its timestamps once it is loaded."""

    __slots__ = (
        "_unindexed_bytes",
        "aborted",
        "base_offset",
        "created_ms",
        "first_timestamp",
        "index_full",
        "index_interval_bytes",
        "loaded",
        "log",
        "max_index_bytes",
        "max_timestamp",
        "max_timestamp_offset",
        "offsets",
        "roll_after_ms",
        "size",
        "times",
    )

    def __init__(
        self,
        base_offset: int,
        log: File,
        size: int,
        offsets: Index,
        times: Index,
        aborted: TransactionIndex,
        config: LogConfig,
        created_ms: int,
    ) -> None:
        self.base_offset = base_offset
        self.log = log
        self.size = size
        self.offsets = offsets
        self.times = times
        self.aborted = aborted
        self.index_interval_bytes = config.index_interval_bytes
        self.max_index_bytes = config.segment_index_bytes
        self.index_full = False
        self.created_ms = created_ms
        self.roll_after_ms = config.max_segment_ms
        self.loaded = size == 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = (
            base_offset  # last offset of the first batch that has the largest timestamp
        )
        self.first_timestamp = NO_TIMESTAMP  # of the first batch, from which rolling by time counts
        self._unindexed_bytes = 0

    @classmethod
    def create(
        cls, files: Files, directory: str, base_offset: int, config: LogConfig, now_ms: int, suffix: str = ""
    ) -> "Segment":
        """New empty files; the caller syncs the directory. Compaction's end with `.cleaned`.

        If one cannot be created, those before it stay on disk, closed: `remove_files` removes them.
        """
        prefix = f"{directory}/{base_offset:020d}"
        made: list[File] = []
        with ExitStack() as unless_whole:
            for kind in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                made.append(files.create(prefix + kind + suffix))
                unless_whole.callback(made[-1].close)
            unless_whole.pop_all()
        log, offsets, times = made
        return cls(
            base_offset,
            log,
            0,
            Index(offsets, OFFSET_ENTRY, 0),
            Index(times, TIME_ENTRY, 0),
            TransactionIndex(files, prefix + TRANSACTION_INDEX_SUFFIX + suffix, None),
            config,
            now_ms,
        )

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        base_offset: int,
        sizes: dict[str, int],
        config: LogConfig,
        now_ms: int,
        suffix: str = "",
    ) -> "Segment":
        """A segment that is on disk; `sizes` are those of the directory's files. Reads nothing."""
        name = f"{base_offset:020d}"
        prefix = f"{directory}/{name}"
        aborted_name = name + TRANSACTION_INDEX_SUFFIX + suffix
        return cls(
            base_offset,
            files.file(prefix + LOG_SUFFIX + suffix),
            sizes[name + LOG_SUFFIX + suffix],
            Index(
                files.file(prefix + INDEX_SUFFIX + suffix),
                OFFSET_ENTRY,
                sizes.get(name + INDEX_SUFFIX + suffix, 0),
            ),
            Index(
                files.file(prefix + TIME_INDEX_SUFFIX + suffix),
                TIME_ENTRY,
                sizes.get(name + TIME_INDEX_SUFFIX + suffix, 0),
            ),
            TransactionIndex(files, f"{directory}/{aborted_name}", sizes.get(aborted_name)),
            config,
            now_ms,
        )

    @property
    def files(self) -> list[File]:
        files = [self.log, self.offsets.file, self.times.file]
        return files if self.aborted.file is None else [*files, self.aborted.file]

    # Writing

    def appended(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """A batch was written here: note its timestamp, and index it if enough was written since the last."""
        if position == 0:
            self.first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._unindexed_bytes > self.index_interval_bytes:
            self.offsets.append(last_offset - self.base_offset, position)
            self._index_time()
            self.index_full = self._is_index_full()
            self._unindexed_bytes = 0
        self._unindexed_bytes += size
        self.size = position + size

    def _index_time(self) -> None:
        last = self.times.last
        if self.max_timestamp > (last[0] if last else NO_TIMESTAMP):
            self.times.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def finish(self) -> None:
        """No more appends for now: complete the indexes on disk, with the largest timestamp last."""
        self.load()
        self._index_time()
        self.offsets.write_pending()
        self.times.write_pending()

    def has_room(
        self, size: int, last_offset: int, max_timestamp: int, now_ms: int, segment_bytes: int
    ) -> bool:
        """Whether batches of this many bytes, with this last offset and this largest timestamp, still fit in here.
        A segment that is not loaded does not know."""
        first = self.first_timestamp
        age_ms = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        return (
            self.loaded
            and self.size + size <= segment_bytes
            and last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
            and not self.index_full
            and (age_ms <= self.roll_after_ms or self.size == 0)
        )

    def _is_index_full(self) -> bool:
        """One entry of the time index is kept free for `finish`."""
        return (
            len(self.offsets) >= self.max_index_bytes // OFFSET_ENTRY.size
            or len(self.times) >= self.max_index_bytes // TIME_ENTRY.size - 1
        )

    def has_index_room(self, size: int) -> bool:
        """Whether this many bytes of batches can be indexed before the indexes are full.

        A batch has at most one entry, however small the interval is."""
        entries = size // max(self.index_interval_bytes, HEADER_SIZE) + 2
        return (
            len(self.offsets) + entries < self.max_index_bytes // OFFSET_ENTRY.size
            and len(self.times) + entries < self.max_index_bytes // TIME_ENTRY.size
        )

    # Reading

    def batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        return walk(self.log.read_at, position, self.size, SCAN_BYTES)

    def batch_bytes(self, position: int, header: BatchHeader) -> bytes:
        return self.log.read_at(position, header.size)

    def _walk(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """The few batches from an index entry on."""
        return walk(self.log.read_at, position, self.size, LOOKUP_BYTES)

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch that ends at or after this offset."""
        for position, header in self._walk(self._floor_position(offset)):
            if header.last_offset >= offset:
                return position, header
        return None

    def locate_timestamp(self, timestamp: int, start_offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """The batches with a timestamp at or above this one, from an offset on."""
        slot = self.times.floor(0, timestamp)
        if slot >= 0:
            entry = self.times[slot]
            if not self._is_time_entry(*entry):
                self.rebuild_indexes()
                slot = self.times.floor(0, timestamp)
                entry = self.times[slot] if slot >= 0 else (NO_TIMESTAMP, 0)
            start_offset = max(start_offset, self.base_offset + entry[1])
        for position, header in self._walk(self._floor_position(start_offset)):
            if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
                yield position, header

    def offset_beyond(self, position: int) -> int | None:
        """The offset of the first batch that is indexed and begins at or after this position, if there is one."""
        slot = self.offsets.floor(1, position - 1) + 1
        if slot == len(self.offsets):
            return None
        relative_offset, indexed = self.offsets[slot]
        header = header_at(self.log.read_at, indexed, self.size)
        if header is None or header.last_offset != self.base_offset + relative_offset or indexed < position:
            return None  # damaged: it is rebuilt when something is looked for
        return header.base_offset

    def next_offset(self) -> int:
        """The offset after the last batch."""
        next_offset = self.base_offset
        for header in self._unindexed_headers():
            next_offset = header.next_offset
        return next_offset

    def _unindexed_headers(self) -> Iterator[BatchHeader]:
        """The headers from the last one on that is indexed."""
        last = self.offsets.last
        position = self._floor_position(self.base_offset + last[0]) if last else 0
        return (header for _, header in self._walk(position))

    def load(self) -> None:
        """Read what is not known after opening: the first and the largest timestamp."""
        if self.loaded:
            return
        first = header_at(self.log.read_at, 0, self.size)
        self.first_timestamp = first.max_timestamp if first else NO_TIMESTAMP
        last = self.times.last or (NO_TIMESTAMP, 0)
        if self._is_time_entry(*last) and all(
            header.max_timestamp <= last[0] for header in self._unindexed_headers()
        ):
            self.max_timestamp, self.max_timestamp_offset = last[0], self.base_offset + last[1]
            self.loaded = True
        else:
            self.rebuild_indexes()

    def _floor_position(self, offset: int) -> int:
        slot = self.offsets.floor(0, offset - self.base_offset)
        if slot < 0:
            return 0
        relative_offset, position = self.offsets[slot]
        header = header_at(self.log.read_at, position, self.size) if position >= 0 else None
        if header is not None and header.last_offset == self.base_offset + relative_offset:
            return position
        self.rebuild_indexes()
        slot = self.offsets.floor(0, offset - self.base_offset)
        return self.offsets[slot][1] if slot >= 0 else 0

    def _is_time_entry(self, timestamp: int, relative_offset: int) -> bool:
        offset = self.base_offset + relative_offset
        found = self.locate(offset)
        return found is not None and found[1].last_offset == offset and found[1].max_timestamp == timestamp

    # Changing

    def rebuild_indexes(self) -> None:
        """Build the offset and the time index from the batches."""
        size = self.size
        self.reset_indexes()
        for position, header in walk(self.log.read_at, 0, size, SCAN_BYTES):
            self.appended(position, header.size, header.last_offset, header.max_timestamp)
        self.size = size
        self.finish()

    def reset_indexes(self) -> None:
        """Start the offset and the time index again; the caller replays the batches through `appended`."""
        self.offsets.truncate(0)
        self.times.truncate(0)
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self.first_timestamp = NO_TIMESTAMP
        self.index_full = False
        self.loaded = True
        self._unindexed_bytes = 0

    def truncate_to(self, offset: int) -> None:
        """Cut off the batch with this offset, and all after it."""
        self.load()
        found = self.locate(offset)
        if found is not None:
            self.log.truncate(found[0])
            self.size = found[0]
            self.aborted.truncate_to(offset)
            self._truncate_indexes(offset)

    def _truncate_indexes(self, offset: int) -> None:
        relative_offset = offset - self.base_offset - 1
        self.offsets.truncate(self.offsets.floor(0, relative_offset) + 1)
        self.times.truncate(self.times.floor(1, relative_offset) + 1)
        self._unindexed_bytes = 0
        self.index_full = False
        last = self.times.last
        if last is not None and not self._is_time_entry(*last):
            self.rebuild_indexes()
            return
        timestamp, relative_offset = last or (NO_TIMESTAMP, 0)
        self.max_timestamp, self.max_timestamp_offset = timestamp, self.base_offset + relative_offset
        for _, header in self._walk(self._floor_position(self.max_timestamp_offset)):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset

    def rename(self, old_suffix: str, new_suffix: str) -> None:
        """Change the suffix of all file names."""
        for file in self.files:
            file.rename(file.path.removesuffix(old_suffix) + new_suffix)

    def remove(self) -> None:
        """Every file that can be; then raise the error of one that could not."""
        with ExitStack() as stack:
            for file in reversed(self.files):
                stack.callback(file.remove)

    def close(self) -> None:
        for file in self.files:
            file.close()
