"""Requests about transactions, for which librdkafka has no call: sent by our own client, to the brokers they concern.

Coordinators are not looked up: every broker is asked, and those that do not coordinate an id say so. FindCoordinator
would create `__transaction_state` in a cluster that has never seen a transaction.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from odradek.cli.access import Access
from odradek.cli.failures import CommandError
from odradek.cli.group_offsets import Place
from odradek.errors import ErrorCode
from odradek.wire.codec import Message
from odradek.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from odradek.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from odradek.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

Answer = TypeVar("Answer", bound=Message)
Server = tuple[str, int]

DURATION_SINCE, PATTERN_SINCE = 1, 2  # ListTransactions
PARTITIONS_IN_A_REQUEST = 500
NOT_HERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


@dataclass(frozen=True)
class Listed:
    """A transactional id, in the JSON output of `list`."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class Described(NamedTuple):
    coordinator: int
    state: TransactionState

    @property
    def partitions(self) -> list[Place]:
        return [Place(topic.topic, index) for topic in self.state.topics for index in topic.partitions]


class OpenTransaction(NamedTuple):
    """As its partition knows it."""

    place: Place
    producer: ProducerState


class Abortion(NamedTuple):
    """What the marker says."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


# --- coordinators ---


def list_transactions(cluster: Access, request: ListTransactionsRequest) -> list[Listed]:
    least_version = 0
    if request.duration_filter >= 0:
        least_version = DURATION_SINCE
    if request.transactional_id_pattern:
        least_version = PATTERN_SINCE
    listed = []
    for broker_id, address in sorted(_addresses(cluster).items()):
        answer = _ask(cluster, address, request, ListTransactionsResponse, least_version)
        _check(answer.error_code, f"broker {broker_id}")
        if answer.unknown_state_filters:
            raise CommandError(f"there is no state {', '.join(answer.unknown_state_filters)}")
        listed += [
            Listed(each.transactional_id, broker_id, each.producer_id, each.transaction_state)
            for each in answer.transaction_states
        ]
    return sorted(listed, key=lambda each: (each.transactional_id, each.coordinator))


def describe_transactions(cluster: Access, ids: Sequence[str]) -> dict[str, Described | None]:
    """By transactional id; None where no coordinator knows it."""
    found: dict[str, Described | None] = dict.fromkeys(ids)
    reasons: dict[str, str] = {}
    for broker_id, address in sorted(_addresses(cluster).items()):
        request = DescribeTransactionsRequest(list(ids))
        for state in _ask(cluster, address, request, DescribeTransactionsResponse).transaction_states:
            code = ErrorCode(state.error_code)
            if code is ErrorCode.NONE:
                found[state.transactional_id] = Described(broker_id, state)
            elif code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND and code not in NOT_HERE:
                reasons[state.transactional_id] = f"{state.transactional_id}: {_words(code)}"
    unknown = [reason for transactional_id, reason in reasons.items() if found[transactional_id] is None]
    if unknown:
        raise CommandError("; ".join(unknown))
    return found


# --- partitions ---


def leaders_of(cluster: Access, topic: str | None) -> dict[Place, int]:
    """The broker that leads each partition, of one topic or of all, internal ones too."""
    topics = cluster.metadata().topics
    if topic is not None and topic not in topics:
        raise CommandError(f"topic {topic!r} does not exist")
    return {
        Place(name, partition.id): partition.leader
        for name in ([topic] if topic is not None else sorted(topics))
        for partition in topics[name].partitions.values()
    }


def replicas_on(cluster: Access, broker_id: int) -> set[Place]:
    return {
        Place(name, partition.id)
        for name, topic in cluster.metadata().topics.items()
        for partition in topic.partitions.values()
        if broker_id in partition.replicas
    }


def open_transactions(cluster: Access, brokers: Mapping[Place, int]) -> Iterator[OpenTransaction]:
    """Of these partitions, as the brokers know them that are named for each."""
    by_broker: dict[int, list[Place]] = {}
    for place, broker_id in brokers.items():
        by_broker.setdefault(broker_id, []).append(place)
    addresses = _addresses(cluster)
    for broker_id, places in sorted(by_broker.items()):
        if broker_id not in addresses:
            raise CommandError(f"{_named(places[0])} has no leader, so nobody knows its transactions")
        for start in range(0, len(places), PARTITIONS_IN_A_REQUEST):
            some = places[start : start + PARTITIONS_IN_A_REQUEST]
            yield from _open_on(cluster, addresses[broker_id], some)


def _open_on(cluster: Access, address: Server, places: Iterable[Place]) -> Iterator[OpenTransaction]:
    by_topic: dict[str, list[int]] = {}
    for place in places:
        by_topic.setdefault(place.topic, []).append(place.partition)
    request = DescribeProducersRequest([TopicRequest(name, indexes) for name, indexes in by_topic.items()])
    for topic in _ask(cluster, address, request, DescribeProducersResponse).topics:
        for partition in topic.partitions:
            place = Place(topic.name, partition.partition_index)
            _check(partition.error_code, partition.error_message or _named(place))
            for producer in partition.active_producers:
                if producer.current_txn_start_offset >= 0:
                    yield OpenTransaction(place, producer)


def write_abort_marker(cluster: Access, place: Place, abortion: Abortion) -> None:
    """At the partition's leader. By the rules before transaction.version 2: then the epoch that the partition knows is
    good enough."""
    leader = leaders_of(cluster, place.topic).get(place)
    if leader is None:
        raise CommandError(f"{place.topic} has no partition {place.partition}")
    addresses = _addresses(cluster)
    if leader not in addresses:
        raise CommandError(f"{_named(place)} has no leader")
    topics = [WritableTxnMarkerTopic(place.topic, [place.partition])]
    producer_id, producer_epoch, coordinator_epoch = abortion
    marker = WritableTxnMarker(producer_id, producer_epoch, False, topics, coordinator_epoch)
    answer = _ask(cluster, addresses[leader], WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse)
    for result in answer.markers:
        for topic in result.topics:
            for partition in topic.partitions:
                _check(partition.error_code, _named(place))


# --- inside: our own client is imported when there is something to ask ---


def _addresses(cluster: Access) -> dict[int, Server]:
    from odradek.cli.own_client import broker_addresses

    return dict(broker_addresses(cluster))


def _ask(
    cluster: Access, server: Server, request: Message, answer_type: type[Answer], least_version: int = 0
) -> Answer:
    from odradek.cli.own_client import Address, ask

    return ask(cluster, Address(*server), request, answer_type, least_version)


def _words(code: int) -> str:
    return ErrorCode(code).name.lower().replace("_", " ")


def _named(place: Place) -> str:
    return f"{place.topic}-{place.partition}"


def _check(code: int, subject: str) -> None:
    if code:
        raise CommandError(f"{subject}: {_words(code)}")
