"""The contents of the picture of a topic, without a place for them."""

from dataclasses import dataclass, field

NO_COORDINATOR = "no coordinator"  # the state of a group whose coordinator is away


@dataclass(frozen=True)
class BrokerScene:
    broker: int
    is_alive: bool
    is_controller: bool = False


@dataclass(frozen=True)
class ReplicaScene:
    broker: int
    is_leader: bool
    is_in_sync: bool
    is_alive: bool  # its broker is
    size_bytes: int | None = None

    @property
    def role(self) -> str:
        if not self.is_alive:
            return "broker away"
        if self.is_leader:
            return "leader"
        return "follower" if self.is_in_sync else "not in sync"

    @property
    def mark(self) -> str:
        """A shape for each role, so that nobody needs the colour."""
        return {"leader": "★", "follower": "○", "not in sync": "▲", "broker away": "✕"}[self.role]


@dataclass(frozen=True)
class PartitionScene:
    partition: int
    leader: int | None
    replicas: tuple[ReplicaScene, ...]
    high_watermark: int | None = None
    log_end: int | None = None  # of the leader: no API tells where a follower's log ends

    @property
    def isr(self) -> frozenset[int]:
        return frozenset(one.broker for one in self.replicas if one.is_in_sync)


@dataclass(frozen=True)
class ConsumerScene:
    member_id: str
    name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class GroupScene:
    group: str
    state: str
    consumers: tuple[ConsumerScene, ...]
    committed: dict[int, int] = field(default_factory=dict)  # by partition
    coordinator: int = -1
    missed: int = 0  # looks since its coordinator is away

    def readers(self) -> dict[int, ConsumerScene]:
        return {number: consumer for consumer in self.consumers for number in consumer.partitions}


@dataclass(frozen=True)
class Scene:
    topic: str
    brokers: tuple[BrokerScene, ...]
    partitions: tuple[PartitionScene, ...]  # those that are shown
    groups: tuple[GroupScene, ...] = ()
