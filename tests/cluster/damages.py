"""Which logs were cut short while their nodes were down, and what is no longer expected of them.

A log may be damaged as long as fewer than `min.insync.replicas` replicas of its partition are, lost disks included:
that is what a cluster promises to survive. A replica is damaged until it is in the ISR again, and has been compared
with what is committed. Until its broker registers again, the metadata may still count on it: that is excused. From then
on it must not be in the ISR or lead, unless it has everything.
"""

from typing import TYPE_CHECKING
from uuid import UUID

from odradek.metadata.image import LOST_DIRECTORY
from tests.cluster.replicated_log import ReplicatedLog

if TYPE_CHECKING:
    from tests.cluster.replicated import ReplicatedLogs


class Damages:
    def __init__(self, logs: "ReplicatedLogs") -> None:
        self._logs = logs
        # For each topic id, partition and broker: the broker epoch at that time.
        self._broker_epochs: dict[tuple[UUID, int, int], int] = {}

    def __len__(self) -> int:
        """Without those of topics that are deleted, or partitions that have moved away."""
        return sum(self._is_of_replica(*place) for place in self._broker_epochs)

    def names(self) -> list[str]:
        """The damaged replicas, for people."""
        return [
            f"{self._logs.logs[topic_id, index].name} of node {broker_id} is damaged"
            for topic_id, index, broker_id in self._broker_epochs
            if self._is_of_replica(topic_id, index, broker_id)
        ]

    def _is_of_replica(self, topic_id: UUID, index: int, broker_id: int) -> bool:
        is_there = topic_id in self._logs.image.topics_by_id
        return is_there and broker_id in self._logs.logs[topic_id, index].registration.replicas

    def may_damage(self, log: ReplicatedLog, broker_id: int) -> bool:
        registration = log.registration
        if log.topic_id not in self._logs.image.topics_by_id or broker_id not in registration.replicas:
            return False
        if log.kept.asked_offset or self._logs.may_be_unclean(log):
            return False  # nothing is promised, or more than the log itself could tell
        damaged = [replica for replica in registration.replicas if self._is_damaged(log, replica)]
        least = min(self._logs.min_isr(log), len(registration.replicas))
        return broker_id not in damaged and len(damaged) + 1 < least

    def _is_damaged(self, log: ReplicatedLog, broker_id: int) -> bool:
        return (
            (log.topic_id, log.index, broker_id) in self._broker_epochs
            or self._logs.has_lost_disk(broker_id)
            or log.registration.directory_of(broker_id) == LOST_DIRECTORY
        )

    def damaged(self, log: ReplicatedLog, broker_id: int) -> None:
        epoch = self._logs.image.brokers[broker_id].epoch
        self._broker_epochs[log.topic_id, log.index, broker_id] = epoch

    def joined(self, log: ReplicatedLog, broker_id: int) -> None:
        """It is in the ISR again."""
        self._broker_epochs.pop((log.topic_id, log.index, broker_id), None)

    def is_excused(self, log: ReplicatedLog, broker_id: int) -> bool:
        """The metadata cannot know of the damage yet."""
        epoch = self._broker_epochs.get((log.topic_id, log.index, broker_id))
        return epoch is not None and epoch == self._logs.image.brokers[broker_id].epoch
