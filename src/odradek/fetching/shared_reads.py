"""The last small read, which those who want the same records share.

The followers of a partition ask for the same records, one right after the other, when a write has woken them all. So
the last read is kept, with the records themselves, and the next follower gets the same. Only small reads are kept: a
large one is a slice of a file, which may be gone when it is asked for again.
"""

from odradek.net.output import COPY_BELOW, read_from_memory
from odradek.replication.source import Fetched, Isolation, Source
from odradek.storage.segments.row import Slice
from odradek.wire.fetch_response import FetchedPartition

NOTHING: Fetched = FetchedPartition(-1, 0)


class SharedReads:
    """Reads from any source, for all requests that share them."""

    __slots__ = ("_key", "_last")

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()  # of the last read: all that it depends on
        self._last = NOTHING

    def read(
        self, source: Source, offset: int, max_bytes: int, minimum_one: bool, isolation: Isolation
    ) -> Fetched:
        """Like `Source.read`; small reads are in memory, if no byte of them has to be waited for."""
        key = (source, offset, source.bounds(isolation), max_bytes, minimum_one, isolation)
        if key == self._key:
            return self._last
        read = source.read(offset, max_bytes, minimum_one, isolation)
        piece = read.records
        if read.length < COPY_BELOW and isinstance(piece, Slice):
            data = read_from_memory(piece)
            if data is not None:
                read = FetchedPartition(*read[:6], data, read.length)
                self._key, self._last = key, read
        return read
