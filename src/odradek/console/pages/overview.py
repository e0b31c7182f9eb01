"""The first page, in the order in which an operator asks: is it well, what may be lost, what refuses writes, who is
behind, what happened, how much goes through."""

from collections.abc import Iterator
from dataclasses import dataclass

from odradek.admin.status import MIN_IN_SYNC, BrokerStatus, ClusterStatus, QuorumStatus
from odradek.console.registry import Page
from odradek.console.requests import Ask
from odradek.console.watch.metrics import Load
from odradek.console.watch.seen import Event, GroupSeen, OpenTransactionSeen, Seen

SHOWN = 10
EVENTS_SHOWN = 15


@dataclass(frozen=True)
class BrokerRow:
    broker: int
    address: str
    rack: str | None
    state: str
    leaders: int
    free_bytes: int | None
    total_bytes: int | None
    full_in_s: float | None
    is_controller: bool


@dataclass(frozen=True)
class Refusal:
    """A partition that refuses writes."""

    topic: str
    partition: int
    reason: str


@dataclass(frozen=True)
class Overview:
    cluster_id: str | None
    is_known: bool  # False until the first look
    problem: str | None  # the cluster does not respond
    problems: list[str]
    advice: list[str]
    tolerance: str | None
    topic_count: int
    partition_count: int
    group_count: int | None
    brokers: list[BrokerRow]
    quorum: QuorumStatus | None
    controller: int | None
    refusing: list[Refusal]
    refusing_count: int
    groups: list[GroupSeen]
    transactions: list[OpenTransactionSeen] | None
    events: list[Event]
    records_per_second: float | None
    throughput: list[float]
    load: Load | None
    seen_ms: int | None

    @property
    def is_healthy(self) -> bool:
        return self.is_known and self.problem is None and not self.problems


def view(ask: Ask) -> Overview:
    return overview_of(ask.cluster.seen)


def overview_of(seen: Seen) -> Overview:
    status = seen.topology.status if seen.topology is not None else None
    refusing = list(refusals(status)) if status is not None else []
    lagging = [group for group in (seen.groups or {}).values() if group.lag is not None]
    topics = seen.topology.topics.values() if seen.topology is not None else ()
    return Overview(
        cluster_id=status.cluster_id if status else None,
        is_known=status is not None,
        problem=seen.problem,
        problems=status.problems() if status else [],
        advice=list(advice(status)) if status else [],
        tolerance=str(status.tolerance) if status and status.tolerance else None,
        topic_count=sum(not topic.is_internal for topic in topics),
        partition_count=status.partition_count if status else 0,
        group_count=None if seen.groups is None else len(seen.groups),
        brokers=[broker_row(one, seen) for one in status.brokers] if status else [],
        quorum=status.quorum if status else None,
        controller=seen.topology.controller if seen.topology else None,
        refusing=refusing[:SHOWN],
        refusing_count=len(refusing),
        groups=sorted(lagging, key=lambda one: -(one.lag or 0))[:SHOWN],
        transactions=None if seen.transactions is None else seen.transactions[:SHOWN],
        events=list(seen.events)[:EVENTS_SHOWN],
        records_per_second=seen.throughput[-1][1] if seen.throughput else None,
        throughput=[value for _, value in seen.throughput],
        load=seen.load,
        seen_ms=seen.seen_ms.get("topology"),
    )


def broker_row(broker: BrokerStatus, seen: Seen) -> BrokerRow:
    disks = seen.disks
    return BrokerRow(
        broker=broker.broker,
        address=f"{broker.host}:{broker.port}",
        rack=broker.rack,
        state=broker.state,
        leaders=broker.leaders,
        free_bytes=disks.free_bytes.get(broker.broker) if disks else None,
        total_bytes=disks.total_bytes.get(broker.broker) if disks else None,
        full_in_s=disks.full_in_s.get(broker.broker) if disks else None,
        is_controller=seen.topology is not None and seen.topology.controller == broker.broker,
    )


def refusals(status: ClusterStatus) -> Iterator[Refusal]:
    """Partitions that refuse writes, and why."""
    alive = {one.broker for one in status.brokers if not one.is_fenced}
    for one in status.offline:
        yield Refusal(one.topic, one.partition, f"no leader: {_cure({*one.replicas}, alive)}")
    for one in status.under_min_isr:
        if one.leader is not None:
            cure = _cure({*one.replicas} - {*one.isr}, alive)
            reason = f"fewer in-sync replicas than {MIN_IN_SYNC}: refuses acks=all; {cure}"
            yield Refusal(one.topic, one.partition, reason)
    full = {one.broker for one in status.brokers if one.is_full}
    if full:
        reason = f"all partitions led by {brokers_named(sorted(full))}: no room on the disk"
        yield Refusal("", -1, reason)


def _cure(missing: set[int], alive: set[int]) -> str:
    """Say what brings a partition back that misses these replicas."""
    if away := sorted(missing - alive):
        return f"start {brokers_named(away)}"
    if missing:
        return f"wait until {brokers_named(sorted(missing))} caught up"
    return "give it more replicas, or topics a lower min.insync.replicas"


def brokers_named(numbers: list[int]) -> str:
    """broker 1; brokers 1, 2 and 3"""
    *others, last = map(str, numbers)
    return f"brokers {', '.join(others)} and {last}" if others else f"broker {last}"


def advice(status: ClusterStatus) -> Iterator[str]:
    """Say what to do first about each problem that has a remedy."""
    fenced = [one.broker for one in status.brokers if one.is_fenced]
    if fenced:
        it = "it" if len(fenced) == 1 else "them"
        yield f"start {brokers_named(fenced)}, or remove {it} with 'odradek cluster remove-broker'"
    if any(one.is_full for one in status.brokers):
        yield "make room on the full disk, or let topics keep less (retention.ms, retention.bytes)"
    if any(one.damaged_logs for one in status.brokers):
        yield "look at the log of the broker with damaged logs: it names them"


PAGES = [
    Page(
        path="",
        title="Overview",
        view=view,
        template="overview.html",
        summary="Say whether the cluster is well, and what to do if not.",
        nav="Overview",
        live_template="overview_live.html",
        parts=("topology", "disks", "groups", "transactions", "events", "offsets", "metrics"),
    )
]
