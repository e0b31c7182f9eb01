"""One replica of a partition, as its leader sees it: what is committed, and who waits for that.

The high watermark is the offset below which everything is committed: held by every in-sync replica. The leader
counts itself only as far as its log is synced (`log.sync.commit`), so an acknowledgement with acks=all, and
every record a consumer sees, is on disk. It never goes back.

Waiting is plain callbacks: this module knows neither sockets nor clocks. A waiter gets the error that the wait
ended with, NONE when what it waited for came true. Each is called once for each wait. It may do as it likes: end other
waits, wait again, close the partition. One that raises is logged, and the others are called all the same: a failed
response to one client must not keep another client's from leaving, nor undo half of what woke them.
"""

import logging
from collections import deque
from collections.abc import Callable
from uuid import UUID

from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.records.validation import DEFAULT_RULES, TopicRules
from odradek.storage.log import Log

logger = logging.getLogger(__name__)

Waiter = Callable[[ErrorCode], None]


class Partition:
    def __init__(self, topic_partition: TopicPartition, topic_id: UUID, log: Log, leader_epoch: int) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.become_leader(leader_epoch)
        # The topic's settings, replaced when they change.
        self.rules: TopicRules = DEFAULT_RULES
        self.sync_commit = True
        self.min_insync_replicas = 1
        self.in_sync_replicas = 1
        self.closed_with = ErrorCode.NONE
        self.is_touched = False  # appended to since the last checkpoint
        # The only in-sync replica holds all that was ever committed.
        self.high_watermark = log.end_offset
        self._commit_waiters: deque[tuple[int, Waiter]] = deque()  # offsets never fall
        self._data_waiters: dict[Waiter, None] = {}

    def become_leader(self, leader_epoch: int) -> None:
        """The epoch begins now, before anything is appended in it."""
        self.leader_epoch = leader_epoch
        self.log.leader_epochs.begin(leader_epoch, self.log.end_offset)

    # --- what is committed ---

    def maybe_advance_high_watermark(self) -> None:
        """After an append, a sync, or a change of the in-sync replicas."""
        reached = self.log.synced_offset if self.sync_commit else self.log.end_offset
        if reached > self.high_watermark:
            self.high_watermark = reached
            self._wake()

    def _wake(self) -> None:
        waiters = self._commit_waiters
        while waiters and waiters[0][0] <= self.high_watermark:
            self._tell(waiters.popleft()[1], ErrorCode.NONE)
        self._wake_readers(ErrorCode.NONE)

    def _wake_readers(self, error: ErrorCode) -> None:
        waiters = self._data_waiters
        for waiter in list(waiters):
            if waiter in waiters:  # unless one before it ended its wait
                del waiters[waiter]
                self._tell(waiter, error)

    def _tell(self, waiter: Waiter, error: ErrorCode) -> None:
        try:
            waiter(error)
        except Exception:
            logger.exception(
                "%s: a request that waited for it failed: this is a bug; the others go on",
                self.topic_partition,
            )

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is open: the end of what `read_committed` may see."""
        return self.log.last_stable_offset(self.high_watermark)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """The newest epoch of our log that is not newer than this one, and the offset where it ended."""
        return self.log.leader_epochs.end_offset_for(leader_epoch, self.log.end_offset)

    # --- waiting ---

    def when_committed(self, offset: int, waiter: Waiter) -> None:
        """Call once everything below `offset` is committed."""
        if self.closed_with:
            waiter(self.closed_with)
        elif offset <= self.high_watermark:
            waiter(ErrorCode.NONE)
        else:
            self._commit_waiters.append((offset, waiter))

    def when_data_arrives(self, waiter: Waiter) -> None:
        """Call once, at the next change that a reader may be waiting for."""
        if self.closed_with:
            waiter(self.closed_with)
        else:
            self._data_waiters[waiter] = None

    def forget_data_waiter(self, waiter: Waiter) -> None:
        self._data_waiters.pop(waiter, None)

    # --- checks ---

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """What the client believes the leader's epoch to be; -1 if it does not say."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def check_enough_replicas(self) -> None:
        """acks=all is refused before anything is written where it could not be kept."""
        if self.in_sync_replicas < self.min_insync_replicas:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    # --- the end ---

    def close(self, error: ErrorCode) -> None:
        """The topic is deleted, the log has failed or the broker stops: nobody waits any longer."""
        self.closed_with = error
        while self._commit_waiters:
            self._tell(self._commit_waiters.popleft()[1], error)
        self._wake_readers(error)
