"""A log's retired segments: replaced by compaction or deleted by retention, renamed, and not removed yet.

A segment keeps its base offset when it is compacted, so several with one offset may wait for their removal. Each gets a
unique name: Kafka's suffix `.deleted`, with a number before it if the name is taken. Recovery removes
every file that ends with `.deleted` (`swap.py`).

They use no descriptors: a reader in the middle of one has it pinned, and nothing else reads it.
"""

from collections.abc import Iterator
from functools import partial
from itertools import count

from odradek.storage.disk.deletions import Deletions
from odradek.storage.segments.segment import DELETED_SUFFIX, Segment


class Retired:
    __slots__ = ("_deletions", "_numbers", "_segments")

    def __init__(self, deletions: Deletions) -> None:
        self._deletions = deletions
        self._segments: dict[tuple[int, int], Segment] = {}  # by base offset and number
        self._numbers = count(1)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments.values())

    def add(self, segment: Segment, due_ms: int) -> None:
        """Rename a segment now, and remove it later."""
        name, suffix = (segment.base_offset, 0), DELETED_SUFFIX
        if name in self._segments:
            number = next(self._numbers)
            name, suffix = (segment.base_offset, number), f".{number}{DELETED_SUFFIX}"
        segment.rename("", suffix)
        segment.close()
        self._segments[name] = segment
        self._deletions.schedule(due_ms, partial(self._remove, name))

    def _remove(self, name: tuple[int, int]) -> None:
        self._segments[name].remove()
        del self._segments[name]
