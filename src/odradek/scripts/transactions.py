"""kafka-transactions.sh: analyze the transactional state of producers, and abort transactions that hang."""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from odradek import __version__
from odradek.admin.access import Access, read_settings
from odradek.admin.places import Place
from odradek.admin.transactions import (
    OPEN_STATES,
    Abortion,
    beginning_at,
    describe_transactions,
    leaders_of,
    list_transactions,
    open_transactions,
    partitions_to_search,
    producers_of,
    without_end,
    write_abort_marker,
)
from odradek.scripts.options import UNSUPPORTED, Exit
from odradek.scripts.table import print_table
from odradek.wire.messages.list_transactions import ListTransactionsRequest

MINUTE_MS = 60_000
FORCE_TERMINATE = "forceTerminateTransaction"


def parser() -> ArgumentParser:
    found = ArgumentParser(
        "kafka-transactions.sh",
        description="This tool is used to analyze the transactional state of producers in the cluster. It can be used "
        "to detect and recover from hanging transactions.",
        allow_abbrev=False,
    )
    found.add_argument("-v", "--version", action="version", version=f"{__version__} (Odradek)")
    found.add_argument(
        "--command-config", type=Path, metavar="FILE", help="property file for the admin client"
    )
    found.add_argument("--bootstrap-server", required=True, metavar="host:port", help="brokers to connect to")
    commands = found.add_subparsers(dest="command", metavar="COMMAND", required=True)
    one = commands.add_parser("list", help="list transactions")
    one.add_argument("--duration-filter", type=int, default=-1, help="only those that run longer, in ms")
    one.add_argument("--transactional-id-pattern", help="a regular expression")
    one = commands.add_parser("describe", help="describe the state of an active transactional-id")
    one.add_argument("--transactional-id", required=True, help="transactional id")
    one = commands.add_parser(
        "describe-producers", help="describe the states of active producers for a partition"
    )
    one.add_argument("--broker-id", type=int, help="a replica, instead of the leader")
    one.add_argument("--topic", required=True, help="topic name")
    one.add_argument("--partition", type=int, required=True, help="partition number")
    one = commands.add_parser("abort", help="abort a hanging transaction")
    one.add_argument("--topic", required=True, help="topic name")
    one.add_argument("--partition", type=int, required=True, help="partition number")
    for name in ("start-offset", "producer-id", "producer-epoch", "coordinator-epoch"):
        one.add_argument(f"--{name}", type=int, help=name.replace("-", " "))
    one = commands.add_parser("find-hanging", help="find hanging transactions")
    one.add_argument("--broker-id", type=int, help="broker id to search for hanging transactions")
    one.add_argument("--max-transaction-timeout", type=int, default=15, help="in minutes (default: 15)")
    one.add_argument("--topic", help="topic name to limit search to")
    one.add_argument("--partition", type=int, help="partition number")
    one = commands.add_parser(FORCE_TERMINATE, help=f"{UNSUPPORTED}")
    one.add_argument("--transactional-id", required=True, help="transactional id")
    return found


def main(arguments: Sequence[str]) -> int:
    if not arguments or {"-h", "--help"} & set(arguments):
        try:
            parser().parse_args(arguments or ["--help"])
        except SystemExit:
            return 1  # Kafka's, too
    options = parser().parse_args(arguments)
    settings = read_settings(options.command_config) if options.command_config else {}
    cluster = Access(options.bootstrap_server, settings, "odradek-scripts")
    actions: dict[str, Callable[[Access, Namespace], None]] = {
        "list": show_list,
        "describe": describe,
        "describe-producers": describe_producers,
        "abort": abort,
        "find-hanging": find_hanging,
    }
    if options.command not in actions:
        raise Exit(1, f"The command {options.command} is {UNSUPPORTED}")
    actions[options.command](cluster, options)
    return 0


def show_list(cluster: Access, options: Namespace) -> None:
    request = ListTransactionsRequest([], [], options.duration_filter, options.transactional_id_pattern)
    print_table(
        ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"),
        [
            (one.transactional_id, one.coordinator, one.producer_id, one.state)
            for one in list_transactions(cluster, request)
        ],
    )


def describe(cluster: Access, options: Namespace) -> None:
    found = describe_transactions(cluster, [options.transactional_id])[options.transactional_id]
    if found is None:
        raise Exit(1, f"Could not find transactional id {options.transactional_id}")
    state = found.state
    is_open = state.transaction_state in OPEN_STATES and state.transaction_start_time_ms >= 0
    now_ms = time.time_ns() // 1_000_000
    print_table(
        (
            *("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState"),
            *(
                "TransactionTimeoutMs",
                "CurrentTransactionStartTimeMs",
                "TransactionDurationMs",
                "TopicPartitions",
            ),
        ),
        [
            (
                *(found.coordinator, state.transactional_id, state.producer_id, state.producer_epoch),
                *(state.transaction_state, state.transaction_timeout_ms),
                state.transaction_start_time_ms if is_open else "None",
                now_ms - state.transaction_start_time_ms if is_open else "None",
                ",".join(map(str, found.partitions)),
            )
        ],
    )


def describe_producers(cluster: Access, options: Namespace) -> None:
    place = Place(options.topic, options.partition)
    broker = leaders_of(cluster, options.topic).get(place) if options.broker_id is None else options.broker_id
    if broker is None:
        raise Exit(1, f"{options.topic} has no partition {options.partition}")
    print_table(
        (
            *("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp"),
            "CurrentTransactionStartOffset",
        ),
        [
            (
                *(one.producer_id, one.producer_epoch, one.coordinator_epoch, one.last_sequence),
                one.last_timestamp,
                one.current_txn_start_offset if one.current_txn_start_offset >= 0 else "None",
            )
            for one in producers_of(cluster, {place: broker})[place]
        ],
    )


def abort(cluster: Access, options: Namespace) -> None:
    place = Place(options.topic, options.partition)
    by_hand = (options.producer_id, options.producer_epoch, options.coordinator_epoch)
    if options.start_offset is not None:
        abortion = beginning_at(cluster, place, options.start_offset)
    elif None not in by_hand:
        abortion = Abortion(by_hand[0], by_hand[1], max(by_hand[2], 0))
    else:
        raise Exit(
            1,
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or "
            "with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)",
        )
    write_abort_marker(cluster, place, abortion)


def find_hanging(cluster: Access, options: Namespace) -> None:
    if options.partition is not None and options.topic is None:
        raise Exit(1, "The --partition argument requires the --topic argument")
    if options.broker_id is None and options.topic is None:
        raise Exit(
            1,
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search",
        )
    now_ms = time.time_ns() // 1_000_000
    before_ms = now_ms - options.max_transaction_timeout * MINUTE_MS
    places = partitions_to_search(cluster, options.topic, options.partition, options.broker_id)
    late = [one for one in open_transactions(cluster, places) if one.producer.last_timestamp < before_ms]
    rows = [
        (
            *(place.topic, place.partition, one.producer_id, one.producer_epoch, one.coordinator_epoch),
            *(one.current_txn_start_offset, one.last_timestamp, (now_ms - one.last_timestamp) // MINUTE_MS),
        )
        for place, one in without_end(cluster, late)
    ]
    header = ("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset")
    print_table((*header, "LastTimestamp", "Duration(min)"), rows)
