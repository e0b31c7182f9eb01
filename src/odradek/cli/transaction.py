"""`odradek transaction`: list and describe transactions, find those that nobody will end, and abort them.

A transaction hangs if a partition has it open and no coordinator will ever write its marker: consumers that read
committed data wait there for ever. Apache Kafka had several ways to get there; with transaction.version 2 there
should be none. The rule of `find-hanging` is that of `kafka-transactions.sh`: the last write is longer ago than any
transaction may take, and either no coordinator knows the producer, or the partition is not in its transaction.
"""

import re
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from odradek.admin.access import Access
from odradek.admin.message_text import TIME_UNITS_MS
from odradek.admin.places import Place
from odradek.cli.access import on_cluster
from odradek.cli.arguments import MOST_OFFSET, MOST_PARTITION, JsonOutput
from odradek.cli.completion import complete_topics, complete_transactional_ids
from odradek.cli.danger import Yes, check_internal, confirm
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Group, Option
from odradek.cli.output import note, print_columns, print_json, print_line, state_cell
from odradek.wording import duration, joined

if TYPE_CHECKING:
    from odradek.admin.transactions import Described, OpenTransaction

app = Group(help="List and describe transactions; find and abort those that hang.")

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
MOST_EPOCH = 2**15 - 1
DURATION = re.compile(r"(\d+)(ms|s|m|h|d)")


def complete_states(incomplete: str) -> list[str]:
    return [state for state in STATES if state.lower().startswith(incomplete.lower())]


@dataclass(frozen=True)
class TransactionView:
    """The output of `describe` for a transactional id; its fields are those of the JSON output."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None  # None if no transaction is open
    running_ms: int | None
    partitions: list[Place]


@dataclass(frozen=True)
class HangingView:
    """A transaction that hangs in a partition; its fields are those of the JSON output."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_written_ms: int


@app.command("list")
@on_cluster
def list_(
    cluster: Access,
    state: Annotated[
        list[str] | None,
        Option("--state", metavar="STATE", help="Only in this state; repeatable.", complete=complete_states),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        Option("--producer-id", min=0, max=MOST_OFFSET, help="Only of this producer; repeatable."),
    ] = None,
    longer_than: Annotated[
        str | None,
        Option(
            "--longer-than", metavar="TIME", help="Only if it is open, and for longer than this: 30s or 5m."
        ),
    ] = None,
    id_pattern: Annotated[
        str | None,
        Option("--id-pattern", metavar="REGEX", help="Only if the transactional id matches."),
    ] = None,
    as_json: JsonOutput = False,
) -> None:
    """List transactional ids, with their coordinators, producers and states."""
    from odradek.admin.transactions import OPEN_STATES, list_transactions
    from odradek.wire.messages.list_transactions import ListTransactionsRequest

    request = ListTransactionsRequest(
        [_state_of(name) for name in state or ()],
        list(producer_id or ()),
        -1 if longer_than is None else _milliseconds(longer_than),
        id_pattern,
    )
    listed = list_transactions(cluster, request)
    if (
        longer_than is not None
    ):  # brokers, as Kafka's do, also list ids whose transaction is over or has not begun
        listed = [each for each in listed if each.state in OPEN_STATES]
    if as_json:
        print_json([asdict(each) for each in listed])
        return
    rows = [
        (each.transactional_id, each.coordinator, each.producer_id, state_cell(each.state)) for each in listed
    ]
    print_columns(("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE"), rows)


@app.command()
@on_cluster
def describe(
    cluster: Access,
    ids: Annotated[
        list[str] | None, Argument(metavar="TRANSACTIONAL-ID...", complete=complete_transactional_ids)
    ] = None,
    as_json: JsonOutput = False,
    transactional_id: Annotated[list[str] | None, Option("--transactional-id", hidden=True)] = None,
) -> None:
    """Show producer, state, age and partitions of transactions, by their transactional ids."""
    ids = [*(ids or ()), *(transactional_id or ())]
    if not ids:
        raise BadParameter("name a transactional id")
    from odradek.admin.transactions import describe_transactions

    found = describe_transactions(cluster, ids)
    now_ms = time.time_ns() // 1_000_000
    views = [_view(each, now_ms) for each in found.values() if each is not None]
    if as_json:
        print_json([asdict(view) for view in views])
    elif views:
        header = (
            *("TRANSACTIONAL-ID", "COORDINATOR", "STATE", "PRODUCER-ID", "EPOCH"),
            *("TIMEOUT", "RUNNING", "PARTITIONS"),
        )
        print_columns(header, [_row(view) for view in views])
    missing = [transactional_id for transactional_id, each in found.items() if each is None]
    if missing:
        raise CommandError(f"no coordinator knows {', '.join(missing)}")


@app.command("find-hanging")
@on_cluster
def find_hanging(
    cluster: Access,
    topic: Annotated[
        str | None,
        Option("--topic", metavar="NAME", help="Only in this topic.", complete=complete_topics),
    ] = None,
    partition: Annotated[
        int | None,
        Option("--partition", "-p", min=0, max=MOST_PARTITION, help="Only in this partition of the topic."),
    ] = None,
    broker: Annotated[
        int | None,
        Option("--broker", metavar="ID", min=0, help="Only in the replicas that this broker has."),
    ] = None,
    max_transaction_timeout: Annotated[
        int,
        Option(
            "--max-transaction-timeout",
            metavar="MINUTES",
            min=0,
            help="How long a transaction may take: transaction.max.timeout.ms (default: 15).",
        ),
    ] = 15,
    as_json: JsonOutput = False,
) -> None:
    """Find transactions that are open in a partition and that no coordinator will end."""
    if partition is not None and topic is None:
        raise BadParameter("--partition needs --topic")
    from odradek.admin.transactions import open_transactions, partitions_to_search, without_end

    brokers = partitions_to_search(cluster, topic, partition, broker)
    before_ms = time.time_ns() // 1_000_000 - max_transaction_timeout * TIME_UNITS_MS["m"]
    candidates = [
        each for each in open_transactions(cluster, brokers) if each.producer.last_timestamp < before_ms
    ]
    hanging = [_hanging_view(each) for each in without_end(cluster, candidates)]
    if as_json:
        print_json([asdict(view) for view in hanging])
        return
    header = (
        *("TOPIC", "PARTITION", "PRODUCER-ID", "EPOCH", "COORDINATOR-EPOCH", "START-OFFSET"),
        "LAST-WRITTEN",
    )
    now_ms = time.time_ns() // 1_000_000
    rows = [
        (*list(asdict(view).values())[:-1], f"{duration((now_ms - view.last_written_ms) / 1000)} ago")
        for view in hanging
    ]
    print_columns(header, rows)
    if hanging:
        first = hanging[0]
        note(
            f"abort {'it' if len(hanging) == 1 else 'the first'} with: odradek transaction abort {first.topic} "
            f"--partition {first.partition} --start-offset {first.start_offset}"
        )


@app.command()
@on_cluster
def abort(
    cluster: Access,
    partition: Annotated[
        int, Option("--partition", "-p", min=0, max=MOST_PARTITION, help="The partition where it hangs.")
    ],
    name: Annotated[str | None, Argument(metavar="TOPIC", complete=complete_topics)] = None,
    start_offset: Annotated[
        int | None,
        Option("--start-offset", min=0, max=MOST_OFFSET, help="Where it began, as find-hanging says."),
    ] = None,
    producer_id: Annotated[
        int | None,
        Option("--producer-id", min=0, max=MOST_OFFSET, help="For brokers that cannot tell: its producer, …"),
    ] = None,
    producer_epoch: Annotated[
        int | None, Option("--producer-epoch", min=0, max=MOST_EPOCH, help="… the producer's epoch …")
    ] = None,
    coordinator_epoch: Annotated[
        int | None, Option("--coordinator-epoch", help="… and the epoch of its coordinator.")
    ] = None,
    yes: Yes = False,
    force: Annotated[
        bool,
        Option(
            "--force",
            help="Allow it for a transaction that its coordinator has open, and in internal topics.",
        ),
    ] = False,
    topic: Annotated[str | None, Option("--topic", hidden=True)] = None,
) -> None:
    """Abort a transaction that hangs in a partition. It asks first, unless --yes is given.

    It refuses one that its coordinator has open and may still commit, unless --force is given: its records would be
    gone here and committed elsewhere."""
    topic = name or topic
    if not topic:
        raise BadParameter("name a topic")
    check_internal([topic], force)
    from odradek.admin.transactions import Abortion, beginning_at, check_hanging, write_abort_marker

    place = Place(topic, partition)
    if start_offset is not None:
        abortion = beginning_at(cluster, place, start_offset)
    elif producer_id is not None and producer_epoch is not None and coordinator_epoch is not None:
        abortion = Abortion(producer_id, producer_epoch, max(coordinator_epoch, 0))
    else:
        raise BadParameter(
            "name the transaction with --start-offset, or with --producer-id, --producer-epoch and "
            "--coordinator-epoch"
        )
    if not force:
        check_hanging(cluster, place, abortion.producer_id)
    confirm(f"Abort the transaction of producer {abortion.producer_id} in {topic}-{partition}?", yes)
    write_abort_marker(cluster, place, abortion)
    print_line(f"Aborted the transaction of producer {abortion.producer_id} in {topic}-{partition}.")


# Input and output


def _state_of(name: str) -> str:
    for state in STATES:
        if state.lower() == name.lower():
            return state
    raise BadParameter(f"{name!r} is not one of {', '.join(STATES)}", param_hint="--state")


def _milliseconds(text: str) -> int:
    found = DURATION.fullmatch(text)
    if found is None:
        raise BadParameter(f"{text!r} is not a time like 500ms, 30s, 5m or 1h", param_hint="--longer-than")
    return int(found[1]) * TIME_UNITS_MS[found[2]]


def _view(described: "Described", now_ms: int) -> TransactionView:
    state = described.state
    from odradek.admin.transactions import OPEN_STATES

    # Coordinators remember when the last transaction began, after it has ended too.
    is_open = state.transaction_state in OPEN_STATES and state.transaction_start_time_ms >= 0
    started_ms = state.transaction_start_time_ms if is_open else None
    return TransactionView(
        transactional_id=state.transactional_id,
        coordinator=described.coordinator,
        state=state.transaction_state,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        timeout_ms=state.transaction_timeout_ms,
        started_ms=started_ms,
        running_ms=None if started_ms is None else max(now_ms - started_ms, 0),
        partitions=described.partitions,
    )


def _row(view: TransactionView) -> tuple[object, ...]:
    return (
        view.transactional_id,
        view.coordinator,
        state_cell(view.state),
        view.producer_id,
        view.producer_epoch,
        duration(view.timeout_ms / 1000),
        None if view.running_ms is None else duration(view.running_ms / 1000),
        joined(f"{place.topic}-{place.partition}" for place in view.partitions),
    )


def _hanging_view(transaction: "OpenTransaction") -> HangingView:
    place, producer = transaction
    return HangingView(
        place.topic,
        place.partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.current_txn_start_offset,
        producer.last_timestamp,
    )
