"""The state of a log's producers, and what of it is saved on disk: snapshots, and the batches since the newest."""

from collections.abc import Callable, Sequence

from odradek.storage.disk.sync import Durability
from odradek.storage.producers.replay import rebuild_producers
from odradek.storage.producers.snapshots import SUFFIX, Snapshots
from odradek.storage.producers.state import Producers
from odradek.storage.segments.segment import Segment


class SavedProducers:
    __slots__ = ("_durability", "_producers", "snapshots")

    def __init__(self, producers: Producers, snapshots: Snapshots, durability: Durability) -> None:
        self._producers = producers
        self.snapshots = snapshots
        self._durability = durability

    def save(self, offset: int) -> None:
        """Write the state at this offset, unless that was done. It is on disk once the log is synced."""
        snapshot = self.snapshots.write(self._producers, offset)
        if snapshot is not None:
            self._durability.mark([snapshot])

    def rebuild(self, segments: Sequence[Segment], end_offset: int) -> None:
        """The log was cut: go back to the state at its end."""
        try:
            rebuild_producers(self._producers, self.snapshots, segments, end_offset)
        finally:
            self._forget_removed()

    def remove_snapshots(self, condition: Callable[[int], bool]) -> None:
        try:
            self.snapshots.remove(condition)
        finally:
            self._forget_removed()

    def _forget_removed(self) -> None:
        """Files that no longer exist cannot be synced, and need not be."""
        there = set(map(self.snapshots.path, self.snapshots.offsets))
        saved = [file for file in self._durability.dirty if file.path.endswith(SUFFIX)]
        self._durability.forget(file for file in saved if file.path not in there)
