"""Which leader epoch began at which offset, for followers and consumers that check for divergence.

Entries rise in both epoch and start offset. A leader enters its epoch when it takes over, before there is any
batch of it. That entry is in memory, so that idle partitions cost no writes; it is on disk before the first
batch of the epoch is, so recovery can check the log against it. If the leader is replaced before
it appended anything, the next one begins at the same offset and its entry replaces this one: nothing
was written, so nothing is lost.
"""

from bisect import bisect_right

from odradek.storage.disk.checkpoints import read_epochs, write_epochs
from odradek.storage.disk.files import Files

NO_EPOCH = -1
NO_OFFSET = -1
NOT_PERSISTED = -2


class LeaderEpochs:
    __slots__ = ("_epochs", "_files", "_path", "_starts", "is_unsaved", "persisted_epoch")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._epochs: list[int] = []
        self._starts: list[int] = []
        # The latest epoch if all entries are on disk, else NOT_PERSISTED: appends need one comparison.
        self.persisted_epoch = NO_EPOCH
        # There is an entry that a later start could not tell from the file and the ends of the log alone.
        self.is_unsaved = False

    def load(self) -> None:
        for epoch, start_offset in read_epochs(self._files, self._path):
            self._epochs.append(epoch)
            self._starts.append(start_offset)
        self.persisted_epoch = self.latest

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """An epoch began here, and has data."""
        if self._enter(epoch, start_offset):
            self.is_unsaved = True

    def begin(self, epoch: int, end_offset: int) -> None:
        """A leader takes over at the end of the log. `persist` follows when it first appends."""
        self._enter(epoch, end_offset)

    def _enter(self, epoch: int, start_offset: int) -> bool:
        """Entries of later offsets or epochs never got data and are dropped. False if it is already known."""
        if epoch < 0 or (epoch == self.latest and start_offset >= self._starts[-1]):
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.persisted_epoch = NOT_PERSISTED
        return True

    def persist(self) -> None:
        """Write the changes since the last time."""
        if self.persisted_epoch == NOT_PERSISTED:
            write_epochs(self._files, self._path, self.entries)
            self.persisted_epoch = self.latest
            self.is_unsaved = False

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch in which this offset was written, NO_EPOCH if that is not known."""
        slot = bisect_right(self._starts, offset) - 1
        return self._epochs[slot] if slot >= 0 else NO_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch not above the one asked for, and where it ended; (-1, -1) if unknown."""
        if epoch < 0 or epoch > self.latest:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        return (self._epochs[above - 1] if above else epoch), self._starts[above]

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that began at or after the log's new end."""
        while self._starts and self._starts[-1] >= end_offset:
            self._pop()
            self.persisted_epoch = NOT_PERSISTED

    def truncate_from_start(self, start_offset: int) -> None:
        """The log starts here: forget epochs that ended before, and let the current one begin there."""
        slot = bisect_right(self._starts, start_offset) - 1
        if slot > 0 or (slot == 0 and self._starts[0] != start_offset):
            del self._epochs[:slot], self._starts[:slot]
            self._starts[0] = start_offset
            self.persisted_epoch = NOT_PERSISTED

    def clear(self) -> None:
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self.persisted_epoch = NOT_PERSISTED

    def _pop(self) -> None:
        self._epochs.pop()
        self._starts.pop()
