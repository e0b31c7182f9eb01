"""The quorum core's view of the log: where it starts and ends, how far it is synced, and where each epoch began.

The records themselves stay with the driver, which reports every batch that it appended (`Batch`). From that the core
knows whether a follower's log agrees with this one: two logs that have the same epoch at the same offset are equal up
to there (Raft's log matching property), so it is enough to compare the last epoch and its end.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from odradek.raft.messages import OffsetAndEpoch
from odradek.raft.voters import Change, VoterHistory

FIRST_EPOCH = 0  # of a new replica, and, as in Kafka, the last epoch of an empty log


class Batch(NamedTuple):
    """A batch as the core sees it; `changes` are its control records that say who votes, by offset."""

    base_offset: int
    end_offset: int
    epoch: int
    changes: tuple[tuple[int, Change], ...] = ()


class LogView:
    """Invariant: `start_offset` ≤ `synced_offset` ≤ `end_offset`; epochs and their first offsets rise."""

    def __init__(
        self,
        voters: VoterHistory,
        *,
        start_offset: int = 0,
        end_offset: int = 0,
        synced_offset: int = 0,
        epochs: Sequence[tuple[int, int]] = (),
        snapshot_id: OffsetAndEpoch | None = None,
    ) -> None:
        """`epochs` are (epoch, first offset); `snapshot_id` is the newest snapshot, which ends at or above
        `start_offset`."""
        self.voters = voters
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.synced_offset = synced_offset
        self.snapshot_id = snapshot_id
        self._epochs = [epoch for epoch, _ in epochs]
        self._starts = [offset for _, offset in epochs]
        if snapshot_id is not None:
            self._add_last_epoch_of(snapshot_id)

    def _add_last_epoch_of(self, snapshot_id: OffsetAndEpoch) -> None:
        """So that the epoch of the last record is known even if the log has no records after the snapshot."""
        if not self._epochs or snapshot_id.epoch < self._epochs[0]:
            self._epochs.insert(0, snapshot_id.epoch)
            self._starts.insert(0, snapshot_id.offset - 1)
        elif snapshot_id.epoch == self._epochs[0]:
            self._starts[0] = min(self._starts[0], snapshot_id.offset - 1)

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, which may be in the snapshot."""
        return self._epochs[-1] if self._epochs else FIRST_EPOCH

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    @property
    def is_synced(self) -> bool:
        return self.synced_offset == self.end_offset

    def is_up_to_date(self, last_epoch: int, end_offset: int) -> bool:
        """True if a candidate whose log ends like this may get a vote: it has at least what is committed here."""
        return (last_epoch, end_offset) >= (self.last_epoch, self.end_offset)

    def append(self, batch: Batch) -> None:
        assert batch.base_offset >= self.end_offset and batch.epoch >= self.last_epoch, (
            f"{batch} after {self.end}"
        )
        if not self._epochs or batch.epoch > self._epochs[-1]:
            self._epochs.append(batch.epoch)
            self._starts.append(batch.base_offset)
        self.end_offset = batch.end_offset
        for offset, change in batch.changes:
            self.voters.add(offset, change)

    def truncate_to(self, end_offset: int) -> None:
        self.end_offset = end_offset
        self.synced_offset = min(self.synced_offset, end_offset)
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        self.voters.truncate_to(end_offset)

    def start_at(self, start_offset: int, snapshot_id: OffsetAndEpoch) -> None:
        """Everything below is in this snapshot, and no longer in the log."""
        assert self.start_offset <= start_offset <= snapshot_id.offset <= self.end_offset
        self.start_offset, self.snapshot_id = start_offset, snapshot_id
        slot = bisect_right(self._starts, start_offset - 1) - 1  # the epoch of the record before the start
        del self._epochs[: max(slot, 0)], self._starts[: max(slot, 0)]
        self.voters.start_at(start_offset)

    def replace_by(self, snapshot_id: OffsetAndEpoch, voters: VoterHistory) -> None:
        """The log is empty now, and continues where this snapshot ends."""
        self.voters, self.snapshot_id = voters, snapshot_id
        self.start_offset = self.end_offset = self.synced_offset = snapshot_id.offset
        self._epochs, self._starts = [snapshot_id.epoch], [snapshot_id.offset - 1]

    def end_of(self, epoch: int) -> OffsetAndEpoch:
        """The largest epoch of this log that is not above this one, and where it ends."""
        above = bisect_right(self._epochs, epoch)
        end_offset = self._starts[above] if above < len(self._starts) else self.end_offset
        return OffsetAndEpoch(end_offset, self._epochs[above - 1] if above else FIRST_EPOCH)

    def check(self, offset: int, last_epoch: int) -> "Agreement":
        """Compare with a replica whose log ends at this offset, with a record of this epoch."""
        if self.snapshot_id is not None and (
            offset == 0 or offset < self.start_offset or last_epoch < self._epochs[0]
        ):
            return Agreement(snapshot_id=self.snapshot_id)
        if offset == 0:
            return Agreement()
        end = self.end_of(last_epoch)
        if end.epoch != last_epoch or end.offset < offset:
            return Agreement(diverging=end)
        return Agreement()

    def truncation_for(self, diverging: OffsetAndEpoch) -> int:
        """Return where to cut this log, given the leader's largest epoch that is not above our last, and its end."""
        end = self.end_of(diverging.epoch)
        return min(end.offset, diverging.offset) if end.epoch == diverging.epoch else end.offset


class Agreement(NamedTuple):
    """The result of comparing a follower's log with the leader's: they agree if neither is set."""

    diverging: OffsetAndEpoch | None = None
    snapshot_id: OffsetAndEpoch | None = None
