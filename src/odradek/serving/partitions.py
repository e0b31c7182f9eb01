"""The partitions on this node, and the disk that they are on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from odradek.errors import KafkaError
from odradek.model import TopicPartition
from odradek.replication.leader import Leader
from odradek.replication.quota import ReplicationQuota
from odradek.replication.replicas import Replicas


class Disk(Protocol):
    """The disk of the data directory."""

    is_full: bool  # this broker gives its leaderships away

    @property
    def keeps_its_rest(self) -> bool:
        """Users' records are refused, because what is left of the disk is for the broker itself."""

    def refusal(self) -> KafkaError:
        """The response to a batch of a producer, while the disk is full."""

    def write_failed(self, error: KafkaError | OSError) -> None:
        """A record could not be written: the disk may be full."""


@dataclass(frozen=True, slots=True, eq=False)
class Partitions:
    """The partitions on this node, as handlers know them."""

    replicas: Replicas
    disk: Disk
    # Moves log start offsets, on disk when it returns; returns errors by partition.
    delete_records: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, KafkaError]]
    replica_fetched: Callable[[Leader], None]  # a replica fetched from us: it may join the ISR
    leader_quota: ReplicationQuota  # of what throttled replicas get
