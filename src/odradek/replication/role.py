"""The role of a replica for one leader epoch, as far as leader and follower have it in common: a log, and what
consumers see of it.

Consumers read from either, up to its high watermark. A follower's is at most the leader's, so everything below it is
committed; a consumer that comes from a replica that was further waits at the follower as for new records (KIP-392).

Pure: no sockets, no clock, no files except through the log.
"""

from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.replication.settings import ReplicaSettings
from odradek.replication.waiters import ChangeWaiters, Waiter
from odradek.storage.log.log import Log


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

    def when_high_watermark_moves(self, waiter: Waiter) -> None:
        """Call it once, when there may be more for consumers to read."""
        if self.closed_with:
            waiter(self.closed_with)
        else:
            self._high_watermark_waiters.add(waiter)

    def forget_waiter(self, waiter: Waiter) -> None:
        self._high_watermark_waiters.discard(waiter)

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
