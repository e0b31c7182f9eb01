"""The brokers of a cluster and what each of them keeps, by Kafka's own requests: Metadata, DescribeCluster and
DescribeLogDirs. Commands that move partitions begin here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from odradek.admin.access import Access, Address
from odradek.admin.failures import AdminError
from odradek.admin.places import Place
from odradek.admin.reassignment_plan import Layout, Move, Replicas
from odradek.admin.requests import ask, ask_any
from odradek.admin.tolerance import Copies
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse

METADATA = MetadataRequest(topics=None, allow_auto_topic_creation=False)


@dataclass(frozen=True)
class PartitionState:
    leader: int  # -1 if there is none
    replicas: Replicas
    isr: Replicas


@dataclass(frozen=True)
class BrokerState:
    id: int
    address: Address
    rack: str | None
    is_fenced: bool
    is_cordoned: bool = False  # it gets no new partitions (KIP-1066)
    sizes: Mapping[Place, int] = field(default_factory=dict)  # bytes of each log that it has


@dataclass(frozen=True)
class ClusterState:
    cluster_id: str
    brokers: Mapping[int, BrokerState]
    partitions: Mapping[Place, PartitionState]

    @property
    def active(self) -> list[int]:
        return sorted(one.id for one in self.brokers.values() if not one.is_fenced)

    def topics(self) -> list[str]:
        return sorted({place.topic for place in self.partitions})

    def layout(self) -> Layout:
        """Return the layout for a plan. Fenced and cordoned brokers keep what they have, and get nothing."""
        usable = {
            one.id: one.rack for one in self.brokers.values() if not one.is_fenced and not one.is_cordoned
        }
        return Layout(
            usable,
            {place: state.replicas for place, state in self.partitions.items()},
            {place: self.size(place) for place in self.partitions},
        )

    def size(self, place: Place) -> int:
        """Return the bytes of this partition, on the broker that has most of it."""
        return max((one.sizes.get(place, 0) for one in self.brokers.values()), default=0)


def look_at(cluster: Access, *, with_logs: bool = False) -> ClusterState:
    """The cluster as it is now; `with_logs`: ask every broker for its logs, too."""
    described = ask_any(cluster, DescribeClusterRequest(include_fenced_brokers=True), DescribeClusterResponse)
    metadata = ask_any(cluster, METADATA, MetadataResponse)
    brokers = {}
    for one in described.brokers:
        address = Address(one.host, one.port)
        state = BrokerState(one.broker_id, address, one.rack or None, one.is_fenced)
        brokers[one.broker_id] = _with_logs(cluster, state) if with_logs and not one.is_fenced else state
    partitions = {
        Place(topic.name or "", one.partition_index): PartitionState(
            one.leader_id, tuple(one.replica_nodes), tuple(one.isr_nodes)
        )
        for topic in metadata.topics
        for one in topic.partitions
    }
    return ClusterState(described.cluster_id, brokers, partitions)


def fewest_in_sync(cluster: Access, state: ClusterState, topics: Iterable[str]) -> dict[str, int]:
    """Read min.insync.replicas of these topics."""
    from odradek.admin.status import fewest_in_sync_of

    return fewest_in_sync_of(cluster, state.brokers[state.active[0]].address, topics)


def copies_after(state: ClusterState, moves: Iterable[Move], fewest: Mapping[str, int]) -> list[Copies]:
    """Predict every partition once these moves are complete and all replicas are in sync."""
    after = {place: one.replicas for place, one in state.partitions.items()}
    after |= {move.place: move.after for move in moves}
    return [
        Copies(place.topic, len(replicas), min(fewest.get(place.topic, 1), len(replicas)))
        for place, replicas in sorted(after.items())
    ]


def _with_logs(cluster: Access, broker: BrokerState) -> BrokerState:
    try:
        directories = ask(
            cluster, broker.address, DescribeLogDirsRequest(None), DescribeLogDirsResponse
        ).results
    except AdminError:  # it may just have died; what it has is unknown then
        return broker
    return BrokerState(
        broker.id,
        broker.address,
        broker.rack,
        broker.is_fenced,
        bool(directories) and all(one.is_cordoned for one in directories),
        _sizes(directories),
    )


def _sizes(directories: list[DescribeLogDirsResult]) -> dict[Place, int]:
    return {
        Place(topic.name, one.partition_index): one.partition_size
        for directory in directories
        for topic in directory.topics
        for one in topic.partitions
        if not one.is_future_key
    }
