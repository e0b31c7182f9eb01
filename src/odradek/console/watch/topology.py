"""Brokers, topics, leaders, the quorum, and what is wrong with them: what `odradek cluster status` looks at, asked so
that the settings of topics are not described again each time."""

from collections import Counter

from odradek.admin.access import Access, Address
from odradek.admin.failures import AdminError
from odradek.admin.metadata import Metadata, Topic, metadata
from odradek.admin.status import (
    BrokerStatus,
    ClusterStatus,
    PartitionStatus,
    ask_anybody,
    fewest_in_sync_of,
    find_quorum,
    little_room,
    tolerance_of,
    under_min_isr,
)
from odradek.console.watch.seen import Disks, TopicSeen, Topology, shared
from odradek.model import id_to_text

LOOK_AGAIN_S = 120.0  # at min.insync.replicas of topics that were seen before


class TopologyTask:
    """Asks for the topology; remembers min.insync.replicas of topics."""

    def __init__(self) -> None:
        self._fewest: dict[str, int] = {}
        self._asked_s = -LOOK_AGAIN_S

    def ask(self, access: Access, disks: Disks | None, now_s: float) -> Topology:
        address, described = ask_anybody(access)
        found = metadata(access)
        fewest = self._fewest_of(access, address, found, now_s)
        quorum, problem = find_quorum(access, address)
        partitions = [
            PartitionStatus(topic.name, one.id, one.leader, one.replicas, one.isr)
            for topic in found.topics.values()
            for one in topic.partitions.values()
        ]
        lacking = [one for one in partitions if len(one.isr) < len(one.replicas)]
        leaders = Counter(one.leader for one in partitions)
        brokers = [
            BrokerStatus(
                *(one.broker_id, one.host, one.port, one.rack or None, one.is_fenced, leaders[one.broker_id]),
                *_space(disks, one.broker_id),
            )
            for one in sorted(described.brokers, key=lambda broker: broker.broker_id)
        ]
        status = ClusterStatus(
            cluster_id=described.cluster_id,
            brokers=brokers,
            quorum=quorum,
            partition_count=len(partitions),
            under_replicated=lacking,
            under_min_isr=under_min_isr(lacking, fewest),
            offline=[one for one in partitions if one.leader is None],
            quorum_problem=problem,
            tolerance=tolerance_of(partitions, fewest, quorum),
        )
        controller = quorum.leader if quorum is not None else found.controller
        topics = {name: _topic(found.topics[name]) for name in sorted(found.topics)}
        return Topology(controller if controller >= 0 else None, topics, status)

    def _fewest_of(self, access: Access, address: Address, found: Metadata, now_s: float) -> dict[str, int]:
        """A topic that cannot be described counts as one that needs a single replica."""
        if now_s - self._asked_s >= LOOK_AGAIN_S:
            self._fewest, self._asked_s = {}, now_s
        new = [name for name in found.topics if name not in self._fewest]
        if new:
            try:
                self._fewest |= fewest_in_sync_of(access, address, new)
            except AdminError:
                self._fewest |= dict.fromkeys(new, 1)
        return self._fewest


def _space(disks: Disks | None, broker: int) -> tuple[int | None, bool]:
    if disks is None or broker not in disks.free_bytes:
        return None, False
    free = disks.free_bytes[broker]
    return free, free < little_room(disks.total_bytes.get(broker, 0))


def _topic(topic: Topic) -> TopicSeen:
    partitions = list(topic.partitions.values())
    return TopicSeen(
        topic.name,
        id_to_text(topic.id),
        topic.is_internal,
        tuple(one.leader for one in partitions),
        tuple(shared(tuple(one.replicas)) for one in partitions),
        tuple(shared(tuple(one.isr)) for one in partitions),
    )
