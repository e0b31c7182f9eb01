"""A cluster in a few numbers."""

from dataclasses import dataclass

from odradek.admin.access import Access
from odradek.admin.metadata import metadata
from odradek.admin.places import is_internal
from odradek.admin.status import ask_anybody, find_quorum


@dataclass(frozen=True)
class BrokerView:
    broker: int
    host: str
    port: int
    rack: str | None
    is_controller: bool
    leaders: int  # partitions that it leads


@dataclass(frozen=True)
class ClusterView:
    """The output of `info`; its fields are those of the JSON output."""

    cluster_id: str | None
    controller: int | None
    topic_count: int  # without internal ones
    partition_count: int  # with those of internal topics
    under_replicated_partitions: int
    offline_partitions: int
    brokers: list[BrokerView]


def view_cluster(cluster: Access) -> ClusterView:
    found = metadata(cluster)
    partitions = [one for topic in found.topics.values() for one in topic.partitions.values()]
    controller = active_controller(cluster)
    if controller is None and found.controller >= 0:
        controller = found.controller
    return ClusterView(
        cluster_id=found.cluster_id,
        controller=controller,
        topic_count=sum(not is_internal(name) for name in found.topics),
        partition_count=len(partitions),
        under_replicated_partitions=sum(len(one.isr) < len(one.replicas) for one in partitions),
        offline_partitions=sum(one.leader is None for one in partitions),
        brokers=[
            BrokerView(
                broker=broker.id,
                host=broker.address.host,
                port=broker.address.port,
                rack=broker.rack,
                is_controller=broker.id == controller,
                leaders=sum(one.leader == broker.id for one in partitions),
            )
            for broker in sorted(found.brokers.values(), key=lambda broker: broker.id)
        ],
    )


def active_controller(cluster: Access) -> int | None:
    """The leader of the metadata quorum; None if the cluster does not report it. Asked for its controller, a cluster
    with a quorum names any broker, because each of them passes requests on."""
    quorum, _ = find_quorum(cluster, ask_anybody(cluster)[0])
    return None if quorum is None else quorum.leader
