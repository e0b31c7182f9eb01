"""`odradek consume`: print the messages of topics, as they are, formatted, or as JSON lines.

Without `--group` no offsets are committed: the command reads the partitions itself, from where you say.
With `--group` it joins that group, reads the partitions that are assigned to it, and commits its position.
Without an end (`--exit-at-end`, `--until`, `--max-messages`, `--timeout`) it follows the topics until Ctrl-C, even
while brokers are down.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any

from confluent_kafka import Consumer

from odradek.cli.access import REQUEST_TIMEOUT_S, Access, Settings, on_cluster
from odradek.cli.arguments import MOST_PARTITION, Quiet, key_value
from odradek.cli.completion import complete_groups, complete_topics
from odradek.cli.consume_filter import compile_filters
from odradek.cli.consume_range import EARLIEST, Range, ends, positions
from odradek.cli.consume_reader import ClusterWatch, Limits, Reader
from odradek.cli.danger import is_internal
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Option
from odradek.cli.group_offsets import Place
from odradek.cli.text import Formatter, compile_format, message_as_json

PATTERN_MARK = "^"

KAFKA_PRINT_PROPERTIES = {
    "print.timestamp": "%T",
    "print.partition": "%p",
    "print.offset": "%o",
    "print.headers": "%h",
    "print.key": "%k",
}


class Isolation(StrEnum):
    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


@on_cluster
def consume(
    cluster: Access,
    topics: Annotated[
        list[str] | None,
        Argument(
            metavar="TOPIC...",
            help="Topics; '^…' is a regular expression, matched against the beginning of their names.",
            complete=complete_topics,
        ),
    ] = None,
    from_beginning: Annotated[
        bool,
        Option("--from-beginning", help="Start at the oldest message, instead of reading only new ones."),
    ] = False,
    offset: Annotated[
        str | None,
        Option(
            "--offset",
            "-o",
            metavar="WHERE",
            help="Start at: earliest, latest, an offset, -N for the last N, @TIME; or A:B, from A to before B.",
        ),
    ] = None,
    from_time: Annotated[
        str | None,
        Option(
            "--from-time",
            metavar="TIME",
            help="Start at a time, as -o @TIME: ISO 8601, milliseconds, or relative like -1h.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        Option("--until", metavar="TIME|latest", help="Stop at that time, or at the current end."),
    ] = None,
    partition: Annotated[
        list[int] | None,
        Option("--partition", "-p", min=0, max=MOST_PARTITION, help="Only this partition; repeatable."),
    ] = None,
    filter_: Annotated[
        list[str] | None,
        Option(
            "--filter",
            "-F",
            metavar="CONDITION",
            help="Only messages that match: key=a, value~regex, header.NAME=b, value.$.json.path>1, or text in the "
            "value; repeatable.",
        ),
    ] = None,
    max_messages: Annotated[
        int | None, Option("--max-messages", "-n", min=1, help="Stop after printing this many.")
    ] = None,
    exit_at_end: Annotated[
        bool, Option("--exit-at-end", "-e", help="Stop at the end of the topics.")
    ] = False,
    timeout: Annotated[
        float | None,
        Option("--timeout", min=0, metavar="SECONDS", help="Stop after this long without a message."),
    ] = None,
    format_: Annotated[
        str | None,
        Option(
            "--format",
            "-f",
            metavar="TEXT",
            help="As in kcat: %t topic, %p partition, %o offset, %k key, %v value, %h headers, %T time in ms, "
            "%K and %S length of key and value.",
        ),
    ] = None,
    null: Annotated[str, Option("--null", metavar="TEXT", help="Text for a missing key or value.")] = "null",
    as_json: Annotated[bool, Option("--json", help="Print one JSON object per line.")] = False,
    group: Annotated[
        str | None,
        Option(
            "--group",
            "-G",
            metavar="NAME",
            help="Read as a member of this group, and commit offsets.",
            complete=complete_groups,
        ),
    ] = None,
    isolation: Annotated[
        Isolation, Option("--isolation", help="Whether to print only committed messages.")
    ] = Isolation.READ_COMMITTED,
    quiet: Quiet = False,
    properties: Annotated[list[str] | None, Option("--property", hidden=True)] = None,
    topic: Annotated[list[str] | None, Option("--topic", hidden=True)] = None,
) -> None:
    """Print the messages of topics."""
    names = list(dict.fromkeys([*(topics or ()), *(topic or ())]))
    if not names:
        raise BadParameter("name a topic", param_hint="TOPIC")
    wanted = Range.of(from_beginning, offset, from_time, until)
    wanted.check()
    if group is not None and (partition or until or offset is not None or from_time is not None):
        raise BadParameter("a group chooses partitions and offsets itself: leave out --group")
    formatter = formatter_of(as_json, format_, null, properties or ())
    passes = _or_bad_usage("--filter", lambda: compile_filters(filter_ or ()))
    limits = Limits(max_messages, exit_at_end, timeout)
    watch = ClusterWatch(cluster, waits_for_ever=limits == Limits())
    settings = consumer_settings(group, wanted, isolation.value)
    with cluster.failures_told(", ".join(names)):
        consumer = cluster.client(Consumer, settings | {"error_cb": watch.note_error})
        reader = Reader(consumer, formatter, passes, limits, watch, quiet, is_in_group=group is not None)
        try:
            places = find_places(consumer, names, partition or ())
            if group is not None:
                reader.subscribe(names)
            else:
                reader.ends = ends(consumer, places, wanted)
                reader.assign(positions(consumer, places, wanted))
            reader.run()
        finally:
            consumer.close()


def _or_bad_usage(option: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except ValueError as error:
        raise BadParameter(str(error), param_hint=option) from None


def formatter_of(as_json: bool, template: str | None, null: str, properties: Iterable[str]) -> Formatter:
    if as_json:
        return message_as_json
    text = template if template is not None else kafka_template(properties)
    formatter: Formatter = _or_bad_usage("--format", lambda: compile_format(text, null.encode()))
    return formatter


def kafka_template(properties: Iterable[str]) -> str:
    """The format that Kafka's console consumer's --property options ask for."""
    wanted = dict(map(key_value, properties))
    parts = [token for name, token in KAFKA_PRINT_PROPERTIES.items() if wanted.get(name) == "true"]
    if wanted.get("print.value", "true") == "true":
        parts.append("%v")
    return wanted.get("key.separator", "\t").replace("%", "%%").join(parts) + "\n"


def consumer_settings(group: str | None, wanted: Range, isolation: str) -> Settings:
    return {
        "group.id": group or "odradek-cli",  # librdkafka requires one even if no group is joined
        "enable.auto.commit": group is not None,
        "auto.offset.reset": "earliest" if wanted.start in EARLIEST else "latest",
        "enable.partition.eof": True,
        "isolation.level": isolation,
    }


def find_places(consumer: Any, names: Sequence[str], partitions: Sequence[int]) -> list[Place]:
    """The partitions to read, of topics named and of those that match a pattern; CommandError if one is missing."""
    there = {
        name: sorted(topic.partitions)
        for name, topic in consumer.list_topics(timeout=REQUEST_TIMEOUT_S).topics.items()
    }
    chosen: dict[str, list[int]] = {}
    for name in names:
        matching = _matching(name, there)
        if not matching:
            what = "no topic matches the pattern" if name.startswith(PATTERN_MARK) else "no such topic"
            raise CommandError(f"{name}: {what} (see 'odradek topic list')")
        for topic in matching:
            if missing := set(partitions).difference(there[topic]):
                raise CommandError(
                    f"{topic} has no partition {min(missing)}: it has {len(there[topic])}, counted from 0"
                )
            chosen[topic] = list(partitions) or there[topic]
    return [Place(topic, partition) for topic, numbers in chosen.items() for partition in numbers]


def _matching(name: str, there: Iterable[str]) -> list[str]:
    if not name.startswith(PATTERN_MARK):
        return [name] if name in there else []
    pattern = _or_bad_usage("TOPIC", lambda: _compiled(name))
    return sorted(topic for topic in there if pattern.match(topic) and not is_internal(topic))


def _compiled(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
