"""One partition of one topic id, as the checker of replicas knows it: who led it when, and what is committed in it."""

from uuid import UUID

from odradek.metadata.image import Partition
from odradek.replication.leader import Leader
from tests.cluster.committed import Committed, read_log
from tests.cluster.kept import Kept


class ReplicatedLog:
    def __init__(self, name: str, topic_id: UUID, index: int, registration: Partition, kept: Kept) -> None:
        self.name = name
        self.topic_id = topic_id
        self.index = index
        self.registration = registration  # the newest that is committed
        self.kept = kept
        self.isrs = {registration.partition_epoch: registration.isr}  # all that ever were, by partition epoch
        self.high_watermark = 0  # the highest that any leader has reached
        self.history: list[Committed] = []
        self.unclean_epoch = -1  # the last whose leader was elected uncleanly
        self.reached_before = 0  # the high watermark before that: who knew it may still have it
        self.is_open = False  # until that leader, or a later one, begins: what is committed?
        self.leaders: dict[int, int] = {}  # by epoch
        self.epoch_starts: dict[int, int] = {}
        # The last registration of each leader epoch by which somebody joined.
        self.joins: dict[int, Partition] = {}
        # Replicas that are not in sync, by broker and partition epoch: the broker epoch that it had then.
        self.outsiders: dict[tuple[int, int], int] = {}

    def elected_uncleanly(self, leader_epoch: int) -> None:
        self.unclean_epoch, self.is_open = leader_epoch, True

    def begin_anew(self, leader: Leader) -> None:
        self.is_open = False
        self.reached_before = max(self.reached_before, self.high_watermark)
        self.high_watermark = leader.high_watermark
        self.history = [item for item in read_log(leader.log, 0) if item.next_offset <= leader.high_watermark]

    def since(self, offset: int) -> list[Committed]:
        first = len(self.history)
        while first and self.history[first - 1].base_offset >= offset:
            first -= 1
        return self.history[first:]
