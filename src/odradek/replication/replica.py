"""This broker's replica of one partition: a log, settings, and the role that the metadata gives it for an epoch.

Each epoch has its own role, a new `Leader` or `Follower`; the previous one is closed and tells all its waiters.
What both roles share is here: the log, what is needed to sync, checkpoint and compact it, and the end.
"""

from collections.abc import Callable
from functools import partial
from uuid import UUID

from odradek.errors import ErrorCode
from odradek.metadata.image import Partition
from odradek.model import TopicPartition
from odradek.replication.follower import Follower
from odradek.replication.leader import Leader
from odradek.replication.settings import ReplicaSettings
from odradek.storage.log.log import Log

NO_EPOCH = -1


class Replica:
    __slots__ = (
        "_appended",
        "_high_watermark",
        "closed_with",
        "follower",
        "is_touched",
        "leader",
        "log",
        "settings",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        log: Log,
        settings: ReplicaSettings,
        *,
        high_watermark: int,
        appended: Callable[["Replica"], None],
    ) -> None:
        """`high_watermark` is the checkpoint's; `appended` is called for every append, in either role."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.settings = settings
        # The role. At most one of them at a time; none before the metadata has named it.
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self.closed_with = ErrorCode.NONE  # for good: no role comes after it
        self.is_touched = False  # appended to since the last checkpoint
        self._high_watermark = high_watermark  # until it has its first role
        self._appended = partial(appended, self)

    def __repr__(self) -> str:
        return f"<Replica {self.leader or self.follower or self.topic_partition}>"

    @property
    def _role(self) -> Leader | Follower | None:
        return self.leader or self.follower

    @property
    def leader_epoch(self) -> int:
        return self._role.leader_epoch if self._role is not None else NO_EPOCH

    @property
    def high_watermark(self) -> int:
        return self._role.high_watermark if self._role is not None else self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """No transaction is open below it."""
        return self.log.last_stable_offset(self.high_watermark)

    # --- roles ---

    def take_role(self, node_id: int, registration: Partition, now_ms: int) -> bool:
        """Take the role that the metadata names. True if it is another role, or the same one in another epoch."""
        leads = registration.leader == node_id
        if self.closed_with or registration.leader_epoch < self.leader_epoch:
            return False
        if registration.leader_epoch == self.leader_epoch and leads == (self.leader is not None):
            if self.leader is not None:
                self.leader.adopt(registration, now_ms)
            return False
        high_watermark, ended = self.high_watermark, self._role
        self.leader = self.follower = None
        if leads:
            self.leader = Leader(
                self.topic_partition,
                self.log,
                self.settings,
                node_id,
                registration,
                high_watermark=high_watermark,
                now_ms=now_ms,
                appended=self._appended,
            )
        else:
            self.follower = Follower(
                self.topic_partition,
                self.log,
                self.settings,
                registration,
                high_watermark=high_watermark,
                appended=self._appended,
            )
        if ended is not None:
            ended.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return True

    def configure(self, settings: ReplicaSettings) -> None:
        self.settings = settings
        if self._role is not None:
            self._role.configure(settings)

    # --- the log ---

    def use_log(self, log: Log) -> None:
        """The log now exists: it replaces the unmade one."""
        assert self.log.end_offset == log.end_offset == 0
        log.producers.verifications = self.log.producers.verifications  # their first batches make the log
        self.log = log
        if self._role is not None:
            self._role.log = log
        if self.leader is not None:
            log.leader_epochs.begin(self.leader.leader_epoch, 0)

    def log_written(self) -> None:
        """The log may have grown, or more of it may be synced."""
        if self.leader is not None:
            self.leader.maybe_advance_high_watermark()
        elif self.follower is not None:
            self.follower.log_synced()

    def close(self, error: ErrorCode) -> None:
        """The topic is deleted, the log has failed or the broker stops: all waits end."""
        self.closed_with = error
        if self._role is not None:
            self._role.close(error)
