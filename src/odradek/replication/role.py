"""The role of a replica for one leader epoch, as far as leader and follower have it in common: a log, and what
requests read of it. Both are readable sources (`source`).

Consumers read from either, up to its high watermark. A follower's is at most the leader's, so everything below it is
committed; a consumer that comes from a replica that was further waits at the follower as for new records (KIP-392).

Pure: no sockets, no clock, no files except through the log.
"""

from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.replication.settings import ReplicaSettings
from odradek.replication.source import Fetched, Isolation
from odradek.replication.waiters import ChangeWaiters, Waiter
from odradek.storage.log.log import Log
from odradek.wire.fetch_response import Divergence, FetchedPartition

LOG_END, TXN_COMMITTED = Isolation.LOG_END, Isolation.TXN_COMMITTED


class Role:
    __slots__ = (
        "_high_watermark_waiters",
        "closed_with",
        "high_watermark",
        "leader_epoch",
        "log",
        "settings",
        "topic_partition",
    )

    high_watermark: int  # log start <= high watermark <= log end

    def __init__(
        self, topic_partition: TopicPartition, log: Log, settings: ReplicaSettings, leader_epoch: int
    ) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self.settings = settings
        self.leader_epoch = leader_epoch  # never changes
        self.closed_with = (
            ErrorCode.NONE
        )  # why the role has ended: then nothing is appended, and nobody waits
        self._high_watermark_waiters = ChangeWaiters(topic_partition)

    @property
    def last_stable_offset(self) -> int:
        """No transaction is open below it: the end of what `read_committed` may see."""
        return self.log.last_stable_offset(self.high_watermark)

    # --- reading ---

    def bounds(self, isolation: Isolation) -> tuple[int, int, int]:
        """Log start, high watermark, and the end of what may be read."""
        log, high_watermark = self.log, self.high_watermark
        if isolation is LOG_END:
            return log.log_start_offset, high_watermark, log.end_offset
        end = self.last_stable_offset if isolation is TXN_COMMITTED else high_watermark
        return log.log_start_offset, high_watermark, end

    def describe(self) -> Fetched:
        """The offsets that every response has, and no records."""
        log, high_watermark = self.log, self.high_watermark
        return FetchedPartition(
            self.topic_partition.partition,
            0,
            high_watermark,
            log.last_stable_offset(high_watermark),
            log.log_start_offset,
        )

    def read(self, offset: int, max_bytes: int, minimum_one: bool, isolation: Isolation) -> Fetched:
        """Records from this offset on. Raises KafkaError, OSError."""
        log, high_watermark = self.log, self.high_watermark
        stable_offset = log.last_stable_offset(high_watermark)
        if isolation is LOG_END:
            end = log.end_offset
        else:
            end = stable_offset if isolation is TXN_COMMITTED else high_watermark
        piece = log.read(offset, max_bytes, end, minimum_one) if max_bytes > 0 or minimum_one else None
        aborted: list[tuple[int, int]] | None = [] if isolation is TXN_COMMITTED else None
        length = 0
        if piece is not None:
            piece.file.ensure_open()
            length = piece.length
            if aborted is not None:
                for transaction in log.aborted_transactions(offset, end, piece):
                    aborted.append((transaction.producer_id, transaction.first_offset))
        return FetchedPartition(
            self.topic_partition.partition,
            0,
            high_watermark,
            stable_offset,
            log.log_start_offset,
            aborted,
            piece,
            length,
        )

    def divergence(self, last_fetched_epoch: int, offset: int) -> Divergence | None:
        """Return where the reader's log has diverged from ours; it ends at this offset, with a record of that epoch."""
        if last_fetched_epoch < 0:
            return None
        log = self.log
        if last_fetched_epoch == log.leader_epochs.latest and offset <= log.end_offset:
            return None  # the newest epoch ends where the log does
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if epoch < 0 or end_offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < last_fetched_epoch or end_offset < offset:
            return Divergence(epoch, end_offset)
        return None

    # --- waiting ---

    def when_high_watermark_moves(self, waiter: Waiter) -> None:
        """Call it once, when there may be more for consumers to read."""
        if self.closed_with:
            waiter(self.closed_with)
        else:
            self._high_watermark_waiters.add(waiter)

    def forget_waiter(self, waiter: Waiter) -> None:
        self._high_watermark_waiters.discard(waiter)

    # --- epochs ---

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """`current_leader_epoch` is the leader epoch that the client knows; -1 if it does not say."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """The newest epoch of our log that is not newer than this one, and the offset where it ended."""
        return self.log.leader_epochs.end_offset_for(leader_epoch, self.log.end_offset)
