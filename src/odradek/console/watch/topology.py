"""Brokers, topics, leaders, the quorum, and what is wrong with them: what `odradek cluster status` looks at, asked so
that the settings of topics are not described again each time."""

from collections import Counter
from collections.abc import Iterable, Sequence

from odradek.admin.access import Access, Address
from odradek.admin.failures import AdminError
from odradek.admin.metadata import Topic, metadata
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

TOPICS_AT_ONCE = 500


class FewestInSync:
    """min.insync.replicas of topics, asked for some of them at a time: a large cluster has many, and they rarely
    change."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self._to_ask: list[str] = []

    def is_complete(self, topics: Iterable[str]) -> bool:
        return all(name in self.known for name in topics)

    def ask_for_missing(self, access: Access, address: Address, topics: Iterable[str]) -> None:
        """Ask for those that are not known yet, if they are few."""
        missing = [name for name in topics if name not in self.known]
        if 0 < len(missing) <= TOPICS_AT_ONCE:
            self._ask(access, address, missing)

    def ask_for_next(self, access: Access, address: Address, topics: Sequence[str]) -> None:
        """The next of all, again and again; those that are not known yet first."""
        if not self._to_ask:
            self._to_ask = sorted(topics, key=lambda name: name not in self.known)
            for name in self.known.keys() - set(topics):
                del self.known[name]
        some = [self._to_ask.pop() for _ in range(min(TOPICS_AT_ONCE, len(self._to_ask)))]
        self._ask(access, address, [name for name in some if name in set(topics)])

    def _ask(self, access: Access, address: Address, names: list[str]) -> None:
        """A topic that cannot be described counts as one that needs a single replica."""
        try:
            self.known |= fewest_in_sync_of(access, address, names)
        except AdminError:
            self.known |= dict.fromkeys((name for name in names if name not in self.known), 1)


class TopologyTask:
    """Asks for the topology."""

    def __init__(self) -> None:
        self.fewest = FewestInSync()

    def ask(self, access: Access, disks: Disks | None) -> Topology:
        address, described = ask_anybody(access)
        found = metadata(access)
        quorum, problem = find_quorum(access, address)
        partitions = [
            PartitionStatus(topic.name, one.id, one.leader, one.replicas, one.isr)
            for topic in found.topics.values()
            for one in topic.partitions.values()
        ]
        lacking = [one for one in partitions if len(one.isr) < len(one.replicas)]
        self.fewest.ask_for_missing(access, address, found.topics)
        self.fewest.ask_for_missing(access, address, dict.fromkeys(one.topic for one in lacking))
        fewest, are_all_known = self.fewest.known, self.fewest.is_complete(found.topics)
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
            tolerance=tolerance_of(partitions, fewest, quorum, problem) if are_all_known else None,
        )
        controller = quorum.leader if quorum is not None else found.controller
        topics = {name: topic_seen(found.topics[name]) for name in sorted(found.topics)}
        return Topology(controller if controller >= 0 else None, topics, status)


def _space(disks: Disks | None, broker: int) -> tuple[int | None, bool]:
    if disks is None or broker not in disks.free_bytes:
        return None, False
    free = disks.free_bytes[broker]
    return free, free < little_room(disks.total_bytes.get(broker, 0))


def topic_seen(topic: Topic) -> TopicSeen:
    partitions = list(topic.partitions.values())
    return TopicSeen(
        topic.name,
        id_to_text(topic.id),
        topic.is_internal,
        tuple(one.leader for one in partitions),
        tuple(shared(tuple(one.replicas)) for one in partitions),
        tuple(shared(tuple(one.isr)) for one in partitions),
    )
