"""Transactions: those that are open, by age and with what they block, those that hang, and how to abort one.

A transaction hangs if a partition has it open and no coordinator will ever end it. To find one, the leaders of
partitions are asked for their producers, which is work: it is done when somebody asks for it.
"""

import time
from dataclasses import dataclass

from odradek.admin.access import Access
from odradek.admin.failures import AdminError, BadRequest, Refused
from odradek.admin.offsets import LATEST, READ_COMMITTED, list_offsets
from odradek.admin.places import Place, is_internal
from odradek.admin.transactions import (
    OpenTransaction,
    beginning_at,
    check_hanging,
    open_transactions,
    partitions_to_search,
    without_end,
    write_abort_marker,
)
from odradek.console.registry import Action, Page
from odradek.console.requests import Ask, doc
from odradek.console.users import Role
from odradek.console.watch.seen import OpenTransactionSeen, Seen

MOST_PARTITIONS = 20_000  # that are searched at once
BLOCKING_SHOWN = 100
MINUTE_MS = 60_000


@dataclass(frozen=True)
class TransactionsQuery:
    hanging: bool = doc("Look for transactions that hang.", False)
    topic: str | None = doc("Look in this topic alone.", None)
    minutes: int = doc("How long a transaction may take: transaction.max.timeout.ms.", 15)


@dataclass(frozen=True)
class OpenRow:
    """`blocked` are records that exist but that readers of committed data do not see yet."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int
    began_ms: int | None
    timeout_ms: int | None
    is_late: bool  # it is open for longer than its timeout
    topics: list[str]
    blocked: int | None


@dataclass(frozen=True)
class InPartition:
    """A transaction as its partition knows it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_written_ms: int


@dataclass(frozen=True)
class TransactionList:
    is_served: bool
    open: list[OpenRow]
    is_searched: bool
    hanging: list[InPartition]
    searched_partitions: int
    problem: str | None  # of the search
    query: TransactionsQuery


def view(ask: Ask) -> TransactionList:
    seen, query = ask.cluster.seen, ask.query
    rows = open_rows(seen, blocked_by(ask.access(), seen), time.time_ns() // 1_000_000)
    hanging: list[InPartition] = []
    count, problem = 0, None
    if query.hanging:
        try:
            hanging, count = find_hanging(ask.access(), query.topic, query.minutes)
        except AdminError as error:
            problem = str(error)
    is_served = seen.transactions is not None or ask.cluster.serves("transactions")
    return TransactionList(is_served, rows, query.hanging, hanging, count, problem, query)


def open_rows(seen: Seen, blocked: dict[str, int], now_ms: int) -> list[OpenRow]:
    return [
        OpenRow(
            *(one.transactional_id, one.producer_id, one.state, one.coordinator),
            *(one.began_ms, one.timeout_ms, is_late(one, now_ms), list(one.topics)),
            sum(blocked.get(topic, 0) for topic in one.topics) if one.topics else None,
        )
        for one in seen.transactions or ()
    ]


def is_late(one: OpenTransactionSeen, now_ms: int) -> bool:
    return one.began_ms is not None and bool(one.timeout_ms) and now_ms - one.began_ms > (one.timeout_ms or 0)


def blocked_by(access: Access, seen: Seen) -> dict[str, int]:
    """Records between the last stable offset and the high watermark, by topic, where a transaction is open."""
    if seen.offsets is None:
        return {}
    topics = {topic for one in seen.transactions or () for topic in one.topics}
    places = [
        Place(name, number)
        for name in sorted(topics)
        for number in range(len(seen.offsets.ends.get(name, ())))
    ]
    blocked: dict[str, int] = {}
    try:
        stable = list_offsets(access, dict.fromkeys(places[:BLOCKING_SHOWN], LATEST), READ_COMMITTED)
    except AdminError:
        return {}
    for place, offset in stable.items():
        end = seen.offsets.end_of(place)
        if isinstance(offset, int) and end is not None:
            blocked[place.topic] = blocked.get(place.topic, 0) + max(end - offset, 0)
    return blocked


def find_hanging(access: Access, topic: str | None, minutes: int) -> tuple[list[InPartition], int]:
    brokers = partitions_to_search(access, topic, None, None)
    if len(brokers) > MOST_PARTITIONS:
        raise BadRequest(f"{len(brokers):,} partitions are too many to search at once: name a topic")
    before_ms = time.time_ns() // 1_000_000 - max(minutes, 0) * MINUTE_MS
    candidates = [
        one for one in open_transactions(access, brokers) if one.producer.last_timestamp < before_ms
    ]
    return [in_partition(one) for one in without_end(access, candidates)], len(brokers)


def in_partition(one: OpenTransaction) -> InPartition:
    place, producer = one
    return InPartition(
        *(place.topic, place.partition, producer.producer_id, producer.producer_epoch),
        *(producer.current_txn_start_offset, producer.last_timestamp),
    )


# One of them


@dataclass(frozen=True)
class TransactionQuery:
    id: str = doc("The transactional id.")


@dataclass(frozen=True)
class TransactionPage:
    transactional_id: str
    known: OpenRow | None  # None: it is not open
    partitions: list[InPartition]
    problem: str | None


def transaction_view(ask: Ask) -> TransactionPage:
    name, seen, access = ask.query.id, ask.cluster.seen, ask.access()
    rows = open_rows(seen, blocked_by(access, seen), time.time_ns() // 1_000_000)
    known = next((one for one in rows if one.transactional_id == name), None)
    if known is None:
        return TransactionPage(name, None, [], None)
    try:
        found = [
            in_partition(one)
            for topic in known.topics
            for one in open_transactions(access, partitions_to_search(access, topic, None, None))
            if one.producer.producer_id == known.producer_id
        ]
    except (AdminError, Refused) as error:
        return TransactionPage(name, known, [], str(error))
    return TransactionPage(name, known, found, None)


# Aborting


@dataclass(frozen=True)
class AbortBody:
    topic: str = doc("The topic.")
    partition: int = doc("The partition where it is open.")
    start_offset: int = doc("Where it began there.")
    force: bool = doc(
        "Abort it even if its coordinator has it open and may still commit it, and in internal topics.", False
    )


def abort(ask: Ask) -> dict[str, str]:
    """Abort by the rules of `odradek transaction abort`: one that its coordinator will end is left to it, unless
    forced.
    """
    body, access = ask.body, ask.access()
    if is_internal(body.topic) and not body.force:
        raise BadRequest(
            f"{body.topic} is an internal topic: the cluster keeps its own state there; choose --force"
        )
    place = Place(body.topic, body.partition)
    abortion = beginning_at(access, place, body.start_offset)
    if not body.force:
        check_hanging(access, place, abortion.producer_id)
    write_abort_marker(access, place, abortion)
    return {"said": f"Aborted the transaction of producer {abortion.producer_id} in {place}."}


PAGES = [
    Page(
        path="transactions",
        title="Transactions",
        view=view,
        template="transactions.html",
        summary="List open transactions, the oldest first, and find those that hang.",
        query=TransactionsQuery,
        nav="Transactions",
        live_template="transactions_live.html",
        parts=("transactions",),
        needs="transactions",
    ),
    Page(
        path="transaction",
        title="Transaction",
        view=transaction_view,
        template="transaction.html",
        summary="Describe an open transaction: the partitions where it is open.",
        query=TransactionQuery,
        needs="transactions",
    ),
]
ACTIONS = [
    Action(
        *("POST", "transactions/abort", "Abort a transaction in a partition.", abort, Role.ADMIN),
        body=AbortBody,
        target=lambda ask: (
            f"{ask.body.topic}-{ask.body.partition} from {ask.body.start_offset}"
            + (" by force" if ask.body.force else "")
        ),
        refreshes=("transactions",),
    )
]
