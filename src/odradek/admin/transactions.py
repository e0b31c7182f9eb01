"""Transactions: listed, described, found where they hang, and aborted.

Coordinators are not looked up: every broker is asked, and those that do not coordinate an id say so. FindCoordinator
would create `__transaction_state` in a cluster that has never seen a transaction.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from odradek.admin.access import Access, Address
from odradek.admin.failures import AdminError, Refused, words
from odradek.admin.metadata import NO_LEADER, broker_addresses, metadata
from odradek.admin.places import Place, by_topic
from odradek.admin.requests import ask
from odradek.errors import ErrorCode
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
from odradek.wording import duration

DURATION_SINCE, PATTERN_SINCE = 1, 2  # ListTransactions
PARTITIONS_IN_A_REQUEST = 500
NOT_HERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


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
    """An open transaction, as its partition knows it."""

    place: Place
    producer: ProducerState


class Abortion(NamedTuple):
    """The content of a marker that aborts a transaction."""

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
    for broker_id, address in sorted(broker_addresses(cluster).items()):
        response = ask(cluster, address, request, ListTransactionsResponse, least_version)
        _check(response.error_code, f"broker {broker_id}")
        if response.unknown_state_filters:
            raise AdminError(f"there is no state {', '.join(response.unknown_state_filters)}")
        listed += [
            Listed(each.transactional_id, broker_id, each.producer_id, each.transaction_state)
            for each in response.transaction_states
        ]
    return sorted(listed, key=lambda each: (each.transactional_id, each.coordinator))


def describe_transactions(cluster: Access, ids: Sequence[str]) -> dict[str, Described | None]:
    """Describe transactions by their id; None stands for one that no coordinator knows."""
    found: dict[str, Described | None] = dict.fromkeys(ids)
    reasons: dict[str, str] = {}
    for broker_id, address in sorted(broker_addresses(cluster).items()):
        request = DescribeTransactionsRequest(list(ids))
        for state in ask(cluster, address, request, DescribeTransactionsResponse).transaction_states:
            code = ErrorCode(state.error_code)
            if code is ErrorCode.NONE:
                found[state.transactional_id] = Described(broker_id, state)
            elif code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND and code not in NOT_HERE:
                reasons[state.transactional_id] = f"{state.transactional_id}: {words(code)}"
    unknown = [reason for transactional_id, reason in reasons.items() if found[transactional_id] is None]
    if unknown:
        raise AdminError("; ".join(unknown))
    return found


# --- partitions ---


def leaders_of(cluster: Access, topic: str | None) -> dict[Place, int]:
    """The broker that leads each partition, of one topic or of all, internal ones too."""
    topics = metadata(cluster).topics
    if topic is not None and topic not in topics:
        raise AdminError(f"topic {topic!r} does not exist")
    return {
        Place(name, partition.id): NO_LEADER if partition.leader is None else partition.leader
        for name in ([topic] if topic is not None else sorted(topics))
        for partition in topics[name].partitions.values()
    }


def replicas_on(cluster: Access, broker_id: int) -> set[Place]:
    return {
        Place(name, partition.id)
        for name, topic in metadata(cluster).topics.items()
        for partition in topic.partitions.values()
        if broker_id in partition.replicas
    }


def open_transactions(cluster: Access, brokers: Mapping[Place, int]) -> Iterator[OpenTransaction]:
    """Yields the open transactions of these partitions, as the broker says that is named for each."""
    for place, producers in producers_of(cluster, brokers).items():
        for producer in producers:
            if producer.current_txn_start_offset >= 0:
                yield OpenTransaction(place, producer)


def producers_of(cluster: Access, brokers: Mapping[Place, int]) -> dict[Place, list[ProducerState]]:
    """The active producers of these partitions, as the brokers know them that are named for each."""
    by_broker: dict[int, list[Place]] = {}
    for place, broker_id in brokers.items():
        by_broker.setdefault(broker_id, []).append(place)
    addresses = broker_addresses(cluster)
    found: dict[Place, list[ProducerState]] = {}
    for broker_id, places in sorted(by_broker.items()):
        if broker_id not in addresses:
            raise AdminError(f"{places[0]} has no leader, so nobody knows its transactions")
        for start in range(0, len(places), PARTITIONS_IN_A_REQUEST):
            some = places[start : start + PARTITIONS_IN_A_REQUEST]
            found |= _producers_on(cluster, addresses[broker_id], some)
    return found


def _producers_on(
    cluster: Access, address: Address, places: Iterable[Place]
) -> dict[Place, list[ProducerState]]:
    topics = [TopicRequest(name, indexes) for name, indexes in by_topic(places).items()]
    found = {}
    for topic in ask(cluster, address, DescribeProducersRequest(topics), DescribeProducersResponse).topics:
        for partition in topic.partitions:
            place = Place(topic.name, partition.partition_index)
            _check(partition.error_code, partition.error_message or str(place))
            found[place] = partition.active_producers
    return found


def write_abort_marker(cluster: Access, place: Place, abortion: Abortion) -> None:
    """Write an abort marker at the partition's leader. By the rules before transaction.version 2, the epoch that it
    knows is good enough."""
    leader = leaders_of(cluster, place.topic).get(place)
    if leader is None:
        raise AdminError(f"{place.topic} has no partition {place.partition}")
    addresses = broker_addresses(cluster)
    if leader not in addresses:
        raise AdminError(f"{place!s} has no leader")
    topics = [WritableTxnMarkerTopic(place.topic, [place.partition])]
    producer_id, producer_epoch, coordinator_epoch = abortion
    marker = WritableTxnMarker(producer_id, producer_epoch, False, topics, coordinator_epoch)
    response = ask(cluster, addresses[leader], WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse)
    for result in response.markers:
        for topic in result.topics:
            for partition in topic.partitions:
                _check(partition.error_code, str(place))


# --- those that hang ---


def partitions_to_search(
    cluster: Access, topic: str | None, partition: int | None, broker: int | None
) -> dict[Place, int]:
    brokers = leaders_of(cluster, topic)
    if partition is not None:
        assert topic is not None
        if Place(topic, partition) not in brokers:
            raise AdminError(f"{topic} has no partition {partition}")
        brokers = {Place(topic, partition): brokers[Place(topic, partition)]}
    if broker is not None:
        there = replicas_on(cluster, broker)
        brokers = {place: broker for place in brokers if place in there}
    return brokers


def without_end(cluster: Access, candidates: list[OpenTransaction]) -> list[OpenTransaction]:
    """Choose the transactions that no coordinator will end. Fails if one that could know them does not respond."""
    if not candidates:
        return []
    producer_ids = sorted({each.producer.producer_id for each in candidates})
    request = ListTransactionsRequest(producer_id_filters=producer_ids)
    ids = {each.producer_id: each.transactional_id for each in list_transactions(cluster, request)}
    described = describe_transactions(cluster, sorted(set(ids.values()))) if ids else {}

    def hangs(transaction: OpenTransaction) -> bool:
        transactional_id = ids.get(transaction.producer.producer_id)
        known = described.get(transactional_id) if transactional_id is not None else None
        return known is None or transaction.place not in known.partitions

    return [each for each in candidates if hangs(each)]


def check_hanging(cluster: Access, place: Place, producer_id: int) -> None:
    """Raise AdminError if the producer's coordinator has the transaction open in this partition, and will end it."""
    listed = list_transactions(cluster, ListTransactionsRequest(producer_id_filters=[producer_id]))
    found = describe_transactions(cluster, [each.transactional_id for each in listed]) if listed else {}
    for each in found.values():
        if each is None or place not in each.partitions or each.state.transaction_state not in OPEN_STATES:
            continue
        state = each.state
        raise AdminError(
            f"this transaction does not hang: its coordinator, broker {each.coordinator}, has it as "
            f"{state.transaction_state} (transactional id {state.transactional_id}), and may still commit it: aborted "
            "here, its records would be gone from this partition and committed in the others. It ends with its "
            f"producer, or {duration(state.transaction_timeout_ms / 1000)} after it began "
            f"(see 'odradek transaction describe {state.transactional_id}'). Add --force to abort it anyway"
        )


def beginning_at(cluster: Access, place: Place, start_offset: int) -> Abortion:
    brokers = leaders_of(cluster, place.topic)
    if place not in brokers:
        raise AdminError(f"{place.topic} has no partition {place.partition}")
    for each in open_transactions(cluster, {place: brokers[place]}):
        producer = each.producer
        if producer.current_txn_start_offset == start_offset:
            # -1: no coordinator has written here for this producer yet, and 0 is not above any that will.
            coordinator_epoch = max(producer.coordinator_epoch, 0)
            return Abortion(producer.producer_id, producer.producer_epoch, coordinator_epoch)
    raise AdminError(f"no open transaction of {place} begins at {start_offset}")


def _check(code: int, subject: str) -> None:
    if code:
        raise Refused(ErrorCode(code), words(code), subject)
