"""A follower of a partition, for one leader epoch: its log becomes a copy of the leader's.

It asks the leader for the records after the end of its log, and says which epoch its last record has. If the two
logs have diverged, the leader returns the epoch in which they did, and the follower cuts its log there. It is never
cut to the high watermark, which arrives late: a record may be committed before the follower knows.

It fetches only once its log is synced: the leader takes a fetch from an offset as proof that everything below is on
this disk.

It serves consumers too, up to the high watermark that it has learned from the leader (`replication.role`).

Pure: no sockets, no clock, no files except through the log.
"""

import logging
from collections.abc import Callable

from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import Partition
from odradek.model import TopicPartition
from odradek.records.batch import HEADER_SIZE, Buffer, read_header
from odradek.replication.progress import UNKNOWN_OFFSET
from odradek.replication.role import Role
from odradek.replication.settings import ReplicaSettings
from odradek.replication.waiters import ChangeWaiters, Waiter
from odradek.storage.log.log import Log

logger = logging.getLogger(__name__)


class Follower(Role):
    __slots__ = ("_appended", "_sync_waiters", "leader", "leader_high_watermark")

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: Log,
        settings: ReplicaSettings,
        registration: Partition,
        *,
        high_watermark: int,
        appended: Callable[[], None],
    ) -> None:
        super().__init__(topic_partition, log, settings, registration.leader_epoch)
        self.leader = registration.leader  # the broker to fetch from; NO_LEADER if there is none now
        self.leader_high_watermark = UNKNOWN_OFFSET  # as of its last response in this epoch
        self._appended = appended
        self._sync_waiters = ChangeWaiters(topic_partition)
        # An epoch in which we led but appended nothing is unknown to other brokers.
        log.leader_epochs.truncate_from_end(log.end_offset)
        # At most the leader's, which we learn late.
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.end_offset)

    def __repr__(self) -> str:
        return f"<Follower of {self.topic_partition} in epoch {self.leader_epoch}>"

    def configure(self, settings: ReplicaSettings) -> None:
        self.settings = settings
        self.log_synced()

    # --- what to fetch ---

    @property
    def may_fetch(self) -> bool:
        """Everything below the fetch offset is on disk, or need not be."""
        return not self.settings.sync_commit or self.log.synced_offset == self.log.end_offset

    @property
    def fetch_offset(self) -> int:
        assert self.may_fetch
        return self.log.end_offset

    @property
    def last_fetched_epoch(self) -> int:
        """The epoch of the last record of our log; -1 if it has none."""
        return self.log.leader_epochs.latest

    def when_synced(self, waiter: Waiter) -> None:
        """Call once, at the next moment when it may fetch."""
        if self.closed_with:
            waiter(self.closed_with)
        elif self.may_fetch:
            waiter(ErrorCode.NONE)
        else:
            self._sync_waiters.add(waiter)

    def log_synced(self) -> None:
        if self.may_fetch:
            self._sync_waiters.wake()

    # --- responses ---

    def append(self, batches: Buffer, now_ms: int, leader_start_offset: int = 0) -> int:
        """Batches of the leader's log, with the offsets they have there; a last one that is cut short is left out.
        Returns the bytes taken."""
        self._check_open()
        self._maybe_start_before(batches, leader_start_offset)
        end_offset = self.log.end_offset
        try:
            return self.log.append_as_follower(batches, now_ms)
        finally:
            if self.log.end_offset != end_offset:  # batches before the failed one stay
                self._appended()

    def _maybe_start_before(self, batches: Buffer, leader_start_offset: int) -> None:
        """The leader's log may start in the middle of a batch, where records were deleted. If we start over there, we
        get that batch as a whole; the leader's log start, which comes with it, hides its first records again. Records
        that we have go then: the leader has deleted all of these, and no longer knows whether they were its own."""
        log = self.log
        has_none = log.end_offset == log.log_start_offset or log.end_offset <= leader_start_offset
        if not has_none or len(batches) < HEADER_SIZE:
            return
        first = read_header(batches)
        if first.base_offset < log.end_offset <= first.last_offset:
            log.truncate_fully_and_start_at(first.base_offset)
            self.high_watermark = log.end_offset

    def truncate(self, epoch: int, end_offset: int, leader_start_offset: int) -> None:
        """The leader's log has diverged from ours: `epoch` is its newest that is not newer than our last record's, and
        ended at `end_offset` there. If we do not have that epoch, we cut off everything newer, and the next fetch
        asks again. Where the leader has deleted all that we would keep, it no longer knows where the logs parted, and
        what we have may never have been committed: we keep nothing."""
        self._check_open()
        if epoch < 0 or end_offset < 0:
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"The leader of {self.topic_partition} does not know where the logs diverge",
            )
        log = self.log
        our_epoch, our_end_offset = log.leader_epochs.end_offset_for(epoch, log.end_offset)
        offset = min(end_offset, our_end_offset if our_epoch >= 0 else log.end_offset)
        if offset < self.high_watermark:
            logger.warning(
                "%s: truncating to offset %d, though all below %d was committed: broker %d was elected leader without "
                "those records (unclean.leader.election.enable), and they are lost",
                self.topic_partition,
                offset,
                self.high_watermark,
                self.leader,
            )
        if offset <= leader_start_offset:
            log.truncate_fully_and_start_at(leader_start_offset)
            self._move_high_watermark(leader_start_offset)
            return
        log.truncate_to(offset)
        self.high_watermark = min(self.high_watermark, log.end_offset)

    def learn_high_watermark(self, offset: int) -> None:
        """Learn the high watermark from a response of the leader. Records that we do not have yet are not committed
        here.
        """
        self.leader_high_watermark = offset
        reached = min(offset, self.log.end_offset)
        if reached > self.high_watermark:
            self._move_high_watermark(reached)
        producers = self.log.producers
        if producers.ended:
            producers.forget_committed(self.high_watermark)

    def _move_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset
        if self._high_watermark_waiters:
            self._high_watermark_waiters.wake()

    @property
    def is_caught_up(self) -> bool:
        """We have everything that was committed when the leader last responded."""
        return 0 <= self.leader_high_watermark <= self.log.end_offset

    def has_to_start_at(self, offset: int) -> bool:
        """Records that the leader has deleted are to be deleted here too, as far as they are committed here. The next
        fetch tells the leader that this is done, so it has to be on disk by then."""
        return self.log.log_start_offset < offset <= self.high_watermark

    def start_over(self, offset: int) -> None:
        """All our records are older than the leader's log, which starts here."""
        self._check_open()
        if offset > self.log.end_offset:
            logger.warning(
                "%s: the log ends at offset %d, but the log of leader %d now starts at %d: starting over from there",
                self.topic_partition,
                self.log.end_offset,
                self.leader,
                offset,
            )
            self.log.truncate_fully_and_start_at(offset)
            self._move_high_watermark(offset)
        else:
            self.log.delete_records_before(offset)

    def _check_open(self) -> None:
        if self.closed_with:
            raise KafkaError(self.closed_with)

    # --- the end ---

    def close(self, error: ErrorCode) -> None:
        """Another epoch begins, the topic is deleted, the log has failed or the broker stops."""
        self.closed_with = error
        self._sync_waiters.wake(error)
        self._high_watermark_waiters.wake(error)
