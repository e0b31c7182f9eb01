"""The last view of a cluster: parts that are replaced as a whole, by one thread, and read by many.

Lists of brokers are shared between partitions (`shared`), because 30,000 partitions have a few different ones.
"""

from array import array
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache

from odradek.admin.places import Place
from odradek.admin.status import ClusterStatus
from odradek.console.watch.metrics import Load

EVENTS_KEPT = 200
POINTS_KEPT = 150  # of a line that is drawn

Brokers = tuple[int, ...]


@lru_cache(maxsize=4096)
def shared(brokers: Brokers) -> Brokers:
    return brokers


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """Its partitions are numbered from 0, and so are these."""

    name: str
    topic_id: str
    is_internal: bool
    leaders: tuple[int | None, ...]
    replicas: tuple[Brokers, ...]
    isr: tuple[Brokers, ...]

    @property
    def replication_factor(self) -> int:
        return max(map(len, self.replicas), default=0)

    @property
    def not_in_sync(self) -> int:
        return sum(len(isr) < len(replicas) for isr, replicas in zip(self.isr, self.replicas, strict=True))

    @property
    def offline(self) -> int:
        return self.leaders.count(None)


@dataclass(frozen=True)
class Topology:
    controller: int | None
    topics: dict[str, TopicSeen]
    status: ClusterStatus


@dataclass(frozen=True)
class Event:
    time_ms: int
    text: str
    is_bad: bool = False


@dataclass(frozen=True)
class Disks:
    free_bytes: dict[int, int]  # by broker
    total_bytes: dict[int, int]
    sizes: dict[str, int]  # by topic, one copy of each partition
    full_in_s: dict[int, float]  # when a disk will be full if it goes on like this


@dataclass(frozen=True)
class Offsets:
    seen_s: float
    ends: dict[str, "array[int]"]  # by topic and partition; -1: not known
    rates: dict[str, float]  # records a second, by topic

    def end_of(self, place: Place) -> int | None:
        ends = self.ends.get(place.topic)
        if ends is None or place.partition >= len(ends) or ends[place.partition] < 0:
            return None
        return ends[place.partition]


@dataclass(frozen=True)
class GroupSeen:
    group: str
    type: str
    state: str
    protocol: str
    coordinator: int
    lag: int | None  # None: nothing committed, or not known
    topics: tuple[str, ...]
    history: tuple[int, ...] = ()  # of the lag, oldest first


@dataclass(frozen=True)
class OpenTransactionSeen:
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int
    began_ms: int | None
    timeout_ms: int | None
    topics: tuple[str, ...]


@dataclass
class Seen:
    """None: not asked yet, or not served."""

    problem: str | None = None  # why the cluster does not respond
    apis: frozenset[int] = frozenset()
    topology: Topology | None = None
    disks: Disks | None = None
    offsets: Offsets | None = None
    groups: dict[str, GroupSeen] | None = None
    transactions: list[OpenTransactionSeen] | None = None
    load: Load | None = None  # None where brokers serve no metrics
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    throughput: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=POINTS_KEPT))
    seen_ms: dict[str, int] = field(default_factory=dict)  # when each part was seen last
    versions: dict[str, int] = field(default_factory=dict)  # how often each part has changed
