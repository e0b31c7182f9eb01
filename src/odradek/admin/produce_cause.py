"""Why a cluster did not acknowledge a message in time.

librdkafka retries what a broker refuses for a passing reason, and in the end only says that the time is over. The cause
is usually still there then, so the cluster is asked: has the partition a leader, does its broker respond, has it room
for records, are enough replicas in sync, do these respond, did a quota hold us back?
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from odradek.admin.access import Access
from odradek.admin.failures import AdminError
from odradek.wording import counted, joined, readable_size

UNKNOWN_PARTITION = -1  # the message was not assigned to one
PARTITIONS_SHOWN = 3
IN_SYNC_RULE = "min.insync.replicas"


class Throttling(NamedTuple):
    """The longest delay that a broker asked for because of a quota."""

    broker: int
    seconds: float


class Quotas:
    """Remembers the worst throttling, for a client's `throttle_cb`."""

    def __init__(self) -> None:
        self.worst: Throttling | None = None

    def note(self, event: Any) -> None:
        if self.worst is None or event.throttle_time > self.worst.seconds:
            self.worst = Throttling(event.broker_id, event.throttle_time)


class Copies(NamedTuple):
    """A partition of the topic, as its cluster describes it."""

    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]


class State(NamedTuple):
    """A broker with in-sync replicas of the partitions, as it describes itself."""

    problem: str | None = None  # why it does not respond
    is_full: bool = False
    free_bytes: int | None = None


def find_cause(
    cluster: Access, topic: str, partition: int, acks_all: bool, throttling: Throttling | None
) -> str | None:
    """Say the cause in a sentence; None if the cluster looks well now. Never raises: this explains another failure."""
    heard = cluster.heard.cause  # before other clients of ours reach the cluster
    try:
        found = _partitions(cluster, topic, partition)
        brokers = {one.leader for one in found if one.leader is not None}
        if acks_all:
            brokers.update(broker for one in found for broker in one.isr)
        states = {broker: _ask_broker(cluster, broker, heard) for broker in sorted(brokers)}
        fewest = _fewest_in_sync(cluster, topic) if acks_all else 1
    except AdminError as error:
        return heard or str(error)
    return next(causes(topic, found, states, fewest, throttling), heard)


def causes(
    topic: str,
    partitions: Iterable[Copies],
    brokers: Mapping[int, State],
    fewest_in_sync: int,
    throttling: Throttling | None,
) -> Iterator[str]:
    """The likeliest first."""
    partitions = list(partitions)
    offline = [one for one in partitions if one.leader is None]
    if offline:
        yield (
            f"{named(topic, offline)} no leader: all of its in-sync replicas "
            f"({joined(offline[0].isr or offline[0].replicas)}) are down (see 'odradek cluster status')"
        )
    for broker, state in brokers.items():
        led = [one for one in partitions if one.leader == broker]
        if led and state.problem is not None:
            yield f"broker {broker}, which leads {listed(topic, led)}, does not respond: {state.problem}"
        if led and state.is_full:
            free = "" if state.free_bytes is None else f" ({readable_size(state.free_bytes)} free)"
            yield (
                f"the disk of broker {broker}, which leads {listed(topic, led)}, is full{free}: make room there, or "
                "let the topic keep less (retention.ms, retention.bytes)"
            )
    short = [
        one
        for one in partitions
        if one.leader is not None and len(one.isr) < min(fewest_in_sync, len(one.replicas))
    ]
    if short:
        first = short[0]
        missing = sorted({*first.replicas} - {*first.isr})
        yield (
            f"{named(topic, short)} {counted(len(first.isr), 'in-sync replica')} of {len(first.replicas)}, and "
            f"{IN_SYNC_RULE} is {fewest_in_sync}: start {'broker' if len(missing) == 1 else 'brokers'} "
            f"{joined(missing)} (see 'odradek cluster status')"
        )
    for broker, state in brokers.items():
        copied = [one for one in partitions if one.leader != broker and broker in one.isr]
        if copied and state.problem is not None:
            yield f"broker {broker}, an in-sync replica of {listed(topic, copied)}, does not respond: {state.problem}"
    if throttling is not None:
        yield (
            f"a quota: broker {throttling.broker} made this client wait up to {throttling.seconds:.1f} s for a request"
        )


def named(topic: str, partitions: list[Copies]) -> str:
    return f"{listed(topic, partitions)} {'has' if len(partitions) == 1 else 'have'}"


def listed(topic: str, partitions: list[Copies]) -> str:
    names = [f"{topic}-{one.partition}" for one in partitions]
    more = len(names) - PARTITIONS_SHOWN
    return ", ".join(names[:PARTITIONS_SHOWN]) + (f" and {more} more" if more > 0 else "")


# Asking


def _partitions(cluster: Access, topic: str, partition: int) -> list[Copies]:
    from odradek.admin.layout import look_at

    return [
        Copies(place.partition, one.leader if one.leader >= 0 else None, list(one.replicas), list(one.isr))
        for place, one in sorted(look_at(cluster).partitions.items())
        if place.topic == topic and partition in (UNKNOWN_PARTITION, place.partition)
    ]


def _ask_broker(cluster: Access, broker: int, heard: str | None) -> State:
    from odradek.admin.metadata import broker_addresses
    from odradek.admin.requests import ask
    from odradek.admin.status import disks_in
    from odradek.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

    address = broker_addresses(cluster).get(broker)
    if address is None:
        return State("the cluster does not say where it is")
    try:
        response = ask(cluster, address, DescribeLogDirsRequest([]), DescribeLogDirsResponse)
    except AdminError as error:
        is_about_it = heard is not None and f"{address.host}:{address.port}" in heard
        return State(heard if is_about_it else str(error))
    disks = disks_in(response.results)
    return State(None, disks.is_full, disks.free_bytes)


def _fewest_in_sync(cluster: Access, topic: str) -> int:
    from odradek.admin.status import fewest_in_sync_of

    return fewest_in_sync_of(cluster, cluster.servers()[0], [topic]).get(topic, 1)
