"""The checks of `odradek cluster status`, and what counts as a problem.

It uses Kafka's own requests to any broker that responds, so it works with any Kafka: DescribeCluster for the brokers,
DescribeQuorum for the controllers, Metadata for the partitions, DescribeConfigs for `min.insync.replicas` of topics,
DescribeLogDirs for each broker's disk. If an older cluster cannot report its quorum, fenced
brokers or disks, the rest decides.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.admin.access import Access, Address
from odradek.admin.failures import AdminError, NoContact
from odradek.admin.metadata import broker_addresses
from odradek.admin.requests import ask
from odradek.admin.resources import RESOURCE_CODES, Kind
from odradek.admin.settings import describe_configs
from odradek.admin.tolerance import Copies, Tolerance, tolerance
from odradek.errors import ErrorCode
from odradek.model import METADATA_TOPIC
from odradek.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionDataInRequest,
    PartitionDataInResponse,
    ReplicaState,
    TopicDataInRequest,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from odradek.wording import counted, readable_size

NO_LEADER = -1
MIN_IN_SYNC = "min.insync.replicas"
TOPICS_AT_ONCE = 500
LITTLE_ROOM, PART_OF_DISK = 256 * 1024 * 1024, 20  # of a smaller disk: a twentieth
VOTER_PATIENCE_MS = 10_000  # followers of the quorum fetch several times a second


@dataclass(frozen=True)
class BrokerStatus:
    broker: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool
    leaders: int  # partitions that it leads
    free_bytes: int | None = None  # on the disk with the least; None: not reported
    is_full: bool = False  # it has no room for records
    damaged_logs: int = 0  # with records that cannot be read
    is_silent: bool = False  # it did not respond to us, though the cluster does not count it as fenced

    @property
    def state(self) -> str:
        if self.is_fenced:
            return "fenced"
        return "silent" if self.is_silent else "full" if self.is_full else "active"


class Disks(NamedTuple):
    """The last fields of a broker's status."""

    free_bytes: int | None
    is_full: bool
    damaged_logs: int
    is_silent: bool = False


UNKNOWN_DISKS = Disks(None, False, 0)
SILENT = Disks(None, False, 0, is_silent=True)


@dataclass(frozen=True)
class ReplicaStatus:
    """A voter or observer of the metadata quorum."""

    node: int
    log_end_offset: int
    lag: int  # records behind the leader
    behind_ms: int | None  # since it last caught up with the leader; None: not reported, or never


@dataclass(frozen=True)
class QuorumStatus:
    leader: int
    epoch: int
    high_watermark: int
    voters: list[ReplicaStatus]
    observers: list[ReplicaStatus]

    def is_behind(self, voter: ReplicaStatus) -> bool:
        if voter.node == self.leader:
            return False
        if voter.behind_ms is None:
            return voter.lag > 0  # an older cluster reports no times
        return voter.behind_ms > VOTER_PATIENCE_MS


@dataclass(frozen=True)
class PartitionStatus:
    topic: str
    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class ClusterStatus:
    """Its fields, and `is_healthy` and `problems`, are those of the JSON output."""

    cluster_id: str
    brokers: list[BrokerStatus]
    quorum: QuorumStatus | None
    partition_count: int
    under_replicated: list[PartitionStatus]
    under_min_isr: list[PartitionStatus]
    offline: list[PartitionStatus]
    quorum_problem: str = field(default="")  # why there is no information; empty if that is no problem
    tolerance: Tolerance | None = None  # what it may lose

    def problems(self) -> list[str]:
        """List the problems in sentences; there are none where all is well."""
        return [*self._problems_of_nodes(), *self._problems_of_partitions()]

    def _problems_of_nodes(self) -> Iterator[str]:
        fenced = [str(one.broker) for one in self.brokers if one.is_fenced]
        if fenced:
            noun = "broker" if len(fenced) == 1 else "brokers"
            yield f"{noun} {', '.join(fenced)} fenced: down, or not ready yet"
        for one in self.brokers:
            if one.is_silent:
                yield f"broker {one.broker} does not respond at {one.host}:{one.port}"
            if one.is_full:
                free = f", {readable_size(one.free_bytes)} free" if one.free_bytes is not None else ""
                yield f"broker {one.broker} has no room for records: its disk is full{free}"
            if one.damaged_logs:
                yield f"broker {one.broker} has {counted(one.damaged_logs, 'damaged log')}: its log file names them"
        if self.quorum is None:
            if self.quorum_problem:
                yield f"the metadata quorum: {self.quorum_problem}"
            return
        for voter in self.quorum.voters:
            if self.quorum.is_behind(voter):
                since = "" if voter.behind_ms is None else f" for {voter.behind_ms / 1000:.0f} s"
                yield f"controller {voter.node} has not caught up{since}: {counted(voter.lag, 'record')} to fetch"

    def _problems_of_partitions(self) -> Iterator[str]:
        for partitions, what in (
            (self.offline, "without a leader"),
            (self.under_min_isr, f"with fewer in-sync replicas than {MIN_IN_SYNC}"),
            (self.under_replicated, "with replicas that are not in sync"),
        ):
            if partitions:
                yield f"{counted(len(partitions), 'partition')} {what}"


# Asking


def find_status(cluster: Access) -> ClusterStatus:
    address, described = ask_anybody(cluster)
    metadata = ask(
        cluster, address, MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse
    )
    partitions = list(partitions_in(metadata))
    lacking = [one for one in partitions if len(one.isr) < len(one.replicas)]
    fewest, are_all_known = fewest_in_sync_known(cluster, address, partitions, lacking)
    leaders = Counter(one.leader for one in partitions)
    quorum, quorum_problem = find_quorum(cluster, address)
    disks = {one.broker_id: find_disks(cluster, one) for one in described.brokers if not one.is_fenced}
    silent = {broker for broker, found in disks.items() if found.is_silent}
    return ClusterStatus(
        cluster_id=described.cluster_id,
        brokers=[
            BrokerStatus(
                one.broker_id,
                one.host,
                one.port,
                one.rack or None,
                one.is_fenced,
                leaders[one.broker_id],
                *disks.get(one.broker_id, UNKNOWN_DISKS),
            )
            for one in sorted(described.brokers, key=lambda broker: broker.broker_id)
        ],
        quorum=quorum,
        partition_count=len(partitions),
        under_replicated=lacking,
        under_min_isr=under_min_isr(lacking, fewest),
        offline=[one for one in partitions if one.leader is None],
        quorum_problem=quorum_problem,
        tolerance=tolerance_of(partitions, fewest, quorum, quorum_problem, silent) if are_all_known else None,
    )


def tolerance_of(
    partitions: Iterable[PartitionStatus],
    fewest: dict[str, int],
    quorum: QuorumStatus | None,
    quorum_problem: str,
    silent: Set[int] = frozenset(),
) -> Tolerance:
    """Count the nodes that may be lost. Replicas on silent brokers count as lost; so does a quorum that should tell of
    itself, and does not: without one, in-sync replicas are those of a time before."""
    copies = [
        Copies(one.topic, len(set(one.isr) - silent), min(fewest.get(one.topic, 1), len(one.replicas)))
        for one in partitions
    ]
    if quorum is None:
        return tolerance(copies, 0, is_quorum_lost=bool(quorum_problem))
    gone = sum(quorum.is_behind(voter) for voter in quorum.voters)
    return tolerance(copies, len(quorum.voters), len(quorum.voters) - gone)


def ask_anybody(cluster: Access) -> tuple[Address, DescribeClusterResponse]:
    """A broker that responds, and what it says about the others: a listed broker may have just died."""
    reasons = []
    for address in broker_addresses(cluster).values():
        try:
            request = DescribeClusterRequest(include_fenced_brokers=True)
            return address, ask(cluster, address, request, DescribeClusterResponse)
        except AdminError as error:
            reasons.append(str(error))
    raise AdminError("; ".join(reasons) or "the cluster names no broker")


def find_disks(cluster: Access, broker: DescribeClusterBroker) -> Disks:
    """A broker's report on its disks."""
    try:
        address = Address(broker.host, broker.port)
        response = ask(cluster, address, DescribeLogDirsRequest([]), DescribeLogDirsResponse)
    except NoContact as error:
        return SILENT if error.is_refused or error.is_silent else UNKNOWN_DISKS
    except AdminError:
        return UNKNOWN_DISKS
    return disks_in(response.results)


def disks_in(directories: Iterable[DescribeLogDirsResult]) -> Disks:
    """The fullest disk counts, if brokers report the space on theirs."""
    directories = list(directories)
    known = [one for one in directories if one.usable_bytes >= 0]
    return Disks(
        min((one.usable_bytes for one in known), default=None),
        any(one.is_full or one.usable_bytes < little_room(one.total_bytes) for one in known),
        sum(one.damaged_logs for one in directories),
    )


def little_room(total_bytes: int) -> int:
    """A disk with less than this is full, whether its broker says so or not: the default of `disk.reserve.bytes`."""
    return min(LITTLE_ROOM, max(total_bytes, 0) // PART_OF_DISK)


def partitions_in(metadata: MetadataResponse) -> Iterator[PartitionStatus]:
    for topic in metadata.topics:
        for one in topic.partitions:
            leader = None if one.leader_id == NO_LEADER else one.leader_id
            yield PartitionStatus(
                topic.name or "", one.partition_index, leader, list(one.replica_nodes), list(one.isr_nodes)
            )


def fewest_in_sync_known(
    cluster: Access, address: Address, partitions: list[PartitionStatus], lacking: list[PartitionStatus]
) -> tuple[dict[str, int], bool]:
    """min.insync.replicas of all topics, or only of those that lack replicas: a topic may just have been deleted, or we
    may not look at it. Then False: not all are known."""
    try:
        return fewest_in_sync(cluster, address, partitions), True
    except AdminError:
        return fewest_in_sync(cluster, address, lacking), False


def fewest_in_sync(
    cluster: Access, address: Address, partitions: Iterable[PartitionStatus]
) -> dict[str, int]:
    """Read min.insync.replicas of the topics that these partitions belong to."""
    return fewest_in_sync_of(cluster, address, dict.fromkeys(one.topic for one in partitions))


def fewest_in_sync_of(cluster: Access, address: Address, topics: Iterable[str]) -> dict[str, int]:
    topics = list(topics)
    found: dict[str, int] = {}
    for at in range(0, len(topics), TOPICS_AT_ONCE):
        some = topics[at : at + TOPICS_AT_ONCE]
        for result in describe_configs(
            cluster, address, RESOURCE_CODES[Kind.TOPIC], some, [MIN_IN_SYNC], is_brief=True
        ):
            found.update((result.resource_name, int(one.value)) for one in result.configs if one.value)
    return found


def under_min_isr(partitions: Iterable[PartitionStatus], fewest: dict[str, int]) -> list[PartitionStatus]:
    """A partition with fewer replicas than that is asked for no more than it has."""
    return [one for one in partitions if len(one.isr) < min(fewest.get(one.topic, 1), len(one.replicas))]


def find_quorum(cluster: Access, address: Address) -> tuple[QuorumStatus | None, str]:
    """The quorum, or why there is no information about it."""
    request = DescribeQuorumRequest([TopicDataInRequest(METADATA_TOPIC, [PartitionDataInRequest(0)])])
    try:
        response = ask(cluster, address, request, DescribeQuorumResponse)
    except AdminError as error:
        return None, "" if ErrorCode.UNSUPPORTED_VERSION.name in str(error) else str(error)
    if response.error_code:
        return None, response.error_message or ErrorCode(response.error_code).name
    (partition,) = response.topics[0].partitions
    if partition.error_code:
        return None, partition.error_message or ErrorCode(partition.error_code).name
    return quorum_status(partition), ""


def quorum_status(found: PartitionDataInResponse) -> QuorumStatus:
    leader = next(
        (one for one in found.current_voters if one.replica_id == found.leader_id),
        ReplicaState(found.leader_id),
    )

    def status_of(one: ReplicaState) -> ReplicaStatus:
        is_told = one.last_caught_up_timestamp >= 0 and leader.last_caught_up_timestamp >= 0
        return ReplicaStatus(
            one.replica_id,
            one.log_end_offset,
            max(leader.log_end_offset - max(one.log_end_offset, 0), 0),
            max(leader.last_caught_up_timestamp - one.last_caught_up_timestamp, 0) if is_told else None,
        )

    return QuorumStatus(
        found.leader_id,
        found.leader_epoch,
        found.high_watermark,
        [status_of(one) for one in sorted(found.current_voters, key=lambda one: one.replica_id)],
        [status_of(one) for one in sorted(found.observers, key=lambda one: one.replica_id)],
    )
