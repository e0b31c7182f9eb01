"""`odradek consume`: print the messages of topics, as they are, formatted, or as JSON lines.

Without `--group` no offsets are committed: the command reads the partitions itself, from where you say.
With `--group` it joins that group, reads the partitions that are assigned to it, and commits its position.
Without an end (`--exit-at-end`, `--until`, `--max-messages`, `--timeout`) it follows the topics until Ctrl-C, even
while brokers are down.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from odradek.admin.access import REQUEST_TIMEOUT_S, Access
from odradek.admin.librdkafka import Settings, failures_told, kafka, make_client
from odradek.admin.message_filter import compile_filters
from odradek.admin.message_text import Formatter, compile_format, message_as_json
from odradek.admin.places import Place, is_internal
from odradek.cli import consume_options as options
from odradek.cli.access import on_cluster
from odradek.cli.arguments import Quiet, key_value
from odradek.cli.consume_range import EARLIEST, Range, ends, starts
from odradek.cli.consume_reader import ClusterWatch, Limits, Reader
from odradek.cli.failures import CommandError
from odradek.cli.framework import BadParameter
from odradek.cli.output import warn

PATTERN_MARK = "^"

KAFKA_PRINT_PROPERTIES = {
    "print.timestamp": "%T",
    "print.partition": "%p",
    "print.offset": "%o",
    "print.headers": "%h",
    "print.key": "%k",
}


@on_cluster
def consume(
    cluster: Access,
    topics: options.Topics = None,
    from_beginning: options.FromBeginning = False,
    offset: options.Offset = None,
    from_time: options.FromTime = None,
    until: options.Until = None,
    partition: options.Partitions = None,
    filter_: options.Filters = None,
    max_messages: options.MaxMessages = None,
    exit_at_end: options.ExitAtEnd = False,
    timeout: options.Timeout = None,
    format_: options.Format = None,
    null: options.Null = "null",
    as_json: options.AsJson = False,
    group: options.Group = None,
    isolation: options.IsolationLevel = options.Isolation.READ_COMMITTED,
    quiet: Quiet = False,
    properties: options.KafkaProperties = None,
    topic: options.KafkaTopics = None,
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
    settings = consumer_settings(group, wanted, isolation.value) | {"error_cb": watch.note_error}
    with failures_told(cluster, ", ".join(names)):
        consumer = make_client(cluster, kafka.Consumer, settings)
        reader = Reader(consumer, formatter, passes, limits, watch, quiet, is_in_group=group is not None)
        read(consumer, reader, names, partition or (), wanted)


def read(
    consumer: Any, reader: Reader, names: Sequence[str], partitions: Sequence[int], wanted: Range
) -> None:
    try:
        places = find_places(consumer, names, partitions)
        if reader.is_in_group:
            reader.subscribe(names)
        else:
            reader.ends = ends(consumer, places, wanted)
            found = starts(consumer, places, wanted)
            if found.are_all_short and reader.has_end:
                raise CommandError(found.shortage(wanted.start))
            if found.short:
                read_there = "nothing is" if reader.has_end else "only new messages are"
                warn(f"{found.shortage(wanted.start)}; {read_there} read there")
            reader.assign(found.positions)
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
