"""kafka-get-offsets.sh: the offsets of topic partitions, by time."""

import re
import sys
from collections.abc import Callable, Sequence

from odradek.admin.failures import Refused
from odradek.admin.metadata import metadata
from odradek.admin.offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    list_offsets,
)
from odradek.admin.places import Place, is_internal
from odradek.scripts.options import Exit, Flag, Parser
from odradek.scripts.running import COMMAND_CONFIG, cluster_of, print_line, said

TIMES = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
    "earliest-pending-upload": EARLIEST_PENDING_UPLOAD,
}
RULE = re.compile(r"([^:,]*)(?::(?:(\d*)|(?:(\d*)-(\d*))))?")
PARSER = Parser(
    "An interactive shell for getting topic-partition offsets.",
    [
        Flag("bootstrap-server", "REQUIRED. The server(s) to connect to.", "HOST1:PORT1,...,HOST3:PORT3"),
        Flag("topic-partitions", "Topics and partitions, such as t1:1,t2:0-3,t3,t4:5-,t5:-3.", "patterns"),
        Flag("topic", "The topic to get the offsets for, or a regular expression.", "topic"),
        Flag("partitions", "Comma separated list of partition ids.", "partition ids"),
        Flag(
            "time",
            "Timestamp in ms, or -1 (latest), -2 (earliest), -3 (max-timestamp), -4 (earliest-local), "
            "-5 (latest-tiered), -6 (earliest-pending-upload).",
            "timestamp",
            default="latest",
        ),
        COMMAND_CONFIG,
        Flag("exclude-internal-topics", "By default, internal topics are included."),
    ],
)

Filter = Callable[[Place], bool]


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        PARSER.fail(PARSER.description)
    given = PARSER.parse(arguments)
    PARSER.require(given, "bootstrap-server")
    if given.has("topic-partitions") and (given.has("topic") or given.has("partitions")):
        raise Exit(1, "--topic-partitions cannot be used with --topic or --partitions")
    time_ms = time_of(given.text("time") or "latest")
    patterns = given.text("topic-partitions")
    fits = (
        rules(patterns) if patterns else topic_and_partitions(given.text("topic"), given.text("partitions"))
    )
    cluster = cluster_of(given)
    places = [
        place
        for place in metadata(cluster).leaders()
        if fits(place) and not (given.has("exclude-internal-topics") and is_internal(place.topic))
    ]
    if not places:
        raise Exit(1, "Could not match any topic-partitions with the specified filters")
    for place, outcome in sorted(list_offsets(cluster, dict.fromkeys(places, time_ms)).items(), key=_by_name):
        if isinstance(outcome, Refused):
            sys.stderr.write(
                f"Skip getting offsets for topic-partition {place} due to error: {said(outcome)}\n"
            )
        elif outcome >= 0:
            print_line(f"{place.topic}:{place.partition}:{outcome}")
    return 0


def _by_name(item: tuple[Place, object]) -> str:
    return str(item[0])


def time_of(text: str) -> int:
    try:
        return TIMES[text] if text in TIMES else int(text)
    except ValueError:
        raise Exit(
            1,
            f"Malformed time argument {text}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp / "
            "-4 or earliest-local / -5 or latest-tiered / -6 or earliest-pending-upload, or a specified long format "
            "timestamp",
        ) from None


def topic_and_partitions(topic: str | None, partitions: str | None) -> Filter:
    patterns = [re.compile(one) for one in topic.split(",")] if topic else []
    try:
        numbers = {int(one) for one in partitions.split(",") if one.strip()} if partitions else set()
    except ValueError:
        raise Exit(
            1,
            f"--partitions expects a comma separated list of numeric partition ids, but received: {partitions}",
        ) from None
    return lambda place: (
        (not patterns or any(one.fullmatch(place.topic) for one in patterns))
        and (not numbers or place.partition in numbers)
    )


def rules(text: str) -> Filter:
    filters = [_rule(one) for one in text.split(",")]
    return lambda place: any(one(place) for one in filters)


def _rule(text: str) -> Filter:
    found = RULE.fullmatch(text)
    if found is None:
        raise Exit(1, f"Invalid rule specification: {text}")
    topic, single, lowest, highest = found.groups()
    if single:
        least, most = int(single), int(single) + 1
    else:
        least, most = int(lowest or 0), int(highest) if highest else sys.maxsize
    pattern = re.compile(topic) if topic else None
    return lambda place: (
        (pattern is None or pattern.fullmatch(place.topic) is not None) and (least <= place.partition < most)
    )
