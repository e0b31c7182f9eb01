"""The three indexes of a segment, in Kafka's formats.

An offset index maps offsets to positions, a time index timestamps to offsets; both are sparse (one entry
for each `index.interval.bytes` of log) and contain only rising pairs of numbers, so one class serves
both. The newest entries of a segment that is being written wait in memory and are written some at a time;
the rest is searched on disk. Losing entries does no harm, because after a crash the indexes of the segments
that were being written are rebuilt.

A transaction index lists the aborted transactions that ended in its segment. Most segments have none, and
then there is no file.

    .index      relative offset int32, position int32
    .timeindex  timestamp int64, relative offset int32
    .txnindex   version int16 (0), producer id, first offset, last offset, last stable offset: all int64
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from odradek.storage.disk.files import File, Files

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
ABORTED_ENTRY = Struct(">hqqqq")
MAX_RELATIVE_OFFSET = 2**31 - 1

# Entries kept in memory before they are written, and entries read at once at the end of a binary search.
PENDING_BYTES = 4096
BLOCK_ENTRIES = 64


class Index:
    """Pairs of numbers, both rising, in a file and (the newest) in memory."""

    __slots__ = ("_entry", "_last", "_pending", "_written", "file")

    def __init__(self, file: File, entry: Struct, file_size: int) -> None:
        self.file = file
        self._entry = entry
        self._written = file_size // entry.size  # entries on disk; a torn last one will be overwritten
        self._pending = bytearray()
        # The newest entry, once it is known: an append asks for it, and must not have to read the disk for it.
        self._last: tuple[int, int] | None = None

    def __len__(self) -> int:
        return self._written + len(self._pending) // self._entry.size

    def __getitem__(self, slot: int) -> tuple[int, int]:
        return next(self.entries(slot, slot + 1))

    @property
    def last(self) -> tuple[int, int] | None:
        if self._last is None and (count := len(self)):
            self._last = self[count - 1]
        return self._last

    def entries(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        size, written = self._entry.size, self._written
        data = b""
        if low < written:
            data = self.file.read_at(low * size, (min(high, written) - low) * size)
        if high > written:
            data += self._pending[max(0, low - written) * size : (high - written) * size]
        yield from self._entry.iter_unpack(data)

    def append(self, first: int, second: int) -> None:
        self._pending += self._entry.pack(first, second)
        self._last = (first, second)
        if len(self._pending) >= PENDING_BYTES:
            try:
                self.write_pending()
            except OSError:
                pass  # no room for an index now: its entries wait in memory, the append itself has succeeded

    def floor(self, field: int, target: int) -> int:
        """The slot of the last entry whose given field is not above the target, or -1."""
        low, high = 0, len(self)
        if self._pending and self._entry.unpack_from(self._pending)[field] <= target:
            low = self._written
        while high - low > BLOCK_ENTRIES:
            middle = (low + high) // 2
            if self[middle][field] > target:
                high = middle
            else:
                low = middle + 1
        return low + bisect_right([entry[field] for entry in self.entries(low, high)], target) - 1

    def write_pending(self) -> None:
        if self._pending:
            self.file.write_at(self._written * self._entry.size, self._pending)
            self._written += len(self._pending) // self._entry.size
            self._pending.clear()

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries, and nothing after them in the file."""
        del self._pending[max(0, count - self._written) * self._entry.size :]
        self._last = None
        if count <= self._written:
            self.file.truncate(count * self._entry.size)
            self._written = count


class AbortedTransaction(NamedTuple):
    """`last_offset` is the marker's; `last_stable_offset` the log's once the marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of one segment, in the order in which they ended."""

    __slots__ = ("_files", "_path", "_size", "file")

    def __init__(self, files: Files, path: str, file_size: int | None) -> None:
        self._files = files
        self._path = path
        self._size = file_size or 0
        self.file: File | None = files.file(path) if file_size is not None else None

    def append(self, aborted: AbortedTransaction) -> None:
        if self.file is None:
            self.file = self._files.create(self._path)
        self.file.write_at(self._size, ABORTED_ENTRY.pack(0, *aborted))
        self._size += ABORTED_ENTRY.size

    def entries(self) -> list[AbortedTransaction]:
        if self.file is None:
            return []
        whole = self._size - self._size % ABORTED_ENTRY.size
        return [
            AbortedTransaction(*entry[1:]) for entry in ABORTED_ENTRY.iter_unpack(self.file.read_at(0, whole))
        ]

    def ended_from(self, offset: int) -> Iterator[AbortedTransaction]:
        """Yield those that ended at or after this offset, without reading those before."""
        slot = bisect_left(range(len(self)), offset, key=self._last_offset)
        while slot < len(self):
            rows = self._rows(slot, BLOCK_ENTRIES)
            yield from (AbortedTransaction(*row[1:]) for row in rows)
            slot += len(rows)

    def __len__(self) -> int:
        return self._size // ABORTED_ENTRY.size

    def _last_offset(self, slot: int) -> int:
        return int(self._rows(slot, 1)[0][3])

    def _rows(self, slot: int, count: int) -> list[tuple[int, ...]]:
        assert self.file is not None
        size = ABORTED_ENTRY.size
        return list(
            ABORTED_ENTRY.iter_unpack(self.file.read_at(slot * size, min(count, len(self) - slot) * size))
        )

    def truncate_to(self, offset: int) -> None:
        """Forget the transactions that ended at or after this offset."""
        if self.file is not None:
            kept = sum(1 for entry in self.entries() if entry.last_offset < offset)
            self._size = kept * ABORTED_ENTRY.size
            self.file.truncate(self._size)


def find_aborted(indexes: Iterable[TransactionIndex], start: int, end: int) -> list[AbortedTransaction]:
    """Return those that reach into a range, by first offset; the indexes are those of the segments from `start`."""
    found: list[AbortedTransaction] = []
    for aborted in chain.from_iterable(index.ended_from(start) for index in indexes):
        if aborted.first_offset < end:
            found.append(aborted)
        if aborted.last_stable_offset >= end:
            break  # all that end later begin at or after `end`
    return sorted(found, key=attrgetter("first_offset"))
