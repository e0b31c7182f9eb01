"""`odradek consume`: print the messages of a topic, as they are, formatted, or as JSON lines.

Without `--group` nothing is remembered: the command reads the partitions itself, from where it is told.
With `--group` it is a member of that group, gets the partitions the group gives it, and its position is
committed. Without an end (`--exit-at-end`, `--max-messages`, `--timeout`) it follows the topic until
Ctrl-C, and gives up only when the whole cluster has been out of reach for a while.
"""

import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Annotated, Any

import typer
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from odradek.cli.clients import (
    DEFAULT_BOOTSTRAP_SERVER,
    REQUEST_TIMEOUT_S,
    BootstrapServer,
    CommandConfig,
    CommandError,
    Settings,
    TopicOption,
    build,
    check_reachable,
    chosen_topic,
    cluster_metadata,
    count_of_messages,
    failures_told,
    key_value,
    partition_ids,
    settings_for,
)
from odradek.cli.text import Formatter, compile_format, message_as_json, parse_time_ms

UNREACHABLE_LIMIT_S = 30.0
BATCH_MESSAGES = 1000
BATCH_WAIT_S = 0.1

KAFKA_PRINT_PROPERTIES = {
    "print.timestamp": "%T",
    "print.partition": "%p",
    "print.offset": "%o",
    "print.headers": "%h",
    "print.key": "%k",
}


@dataclass(frozen=True)
class Start:
    """Where reading begins, by at most one of the ways to say it; at the end if by none."""

    from_beginning: bool = False
    offset: str | None = None
    time_ms: int | None = None

    def __post_init__(self) -> None:
        if sum((self.from_beginning, self.offset is not None, self.time_ms is not None)) > 1:
            raise typer.BadParameter("give only one of --from-beginning, --offset and --from-time")


@dataclass(frozen=True)
class Limits:
    """When reading ends; None and False: never."""

    max_messages: int | None
    exit_at_end: bool
    timeout_s: float | None


def consume(
    name: Annotated[str | None, typer.Argument(metavar="TOPIC", show_default=False)] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the oldest message; else only new ones.")
    ] = False,
    offset: Annotated[
        str | None,
        typer.Option("--offset", "-o", help="Start there: a number, -N for the last N, beginning or end."),
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option("--from-time", help="Start at a time: ISO 8601, milliseconds, or relative like -1h."),
    ] = None,
    partition: Annotated[
        list[int], typer.Option("--partition", "-p", min=0, help="Only this one; may be repeated.")
    ] = [],  # noqa: B006 - Typer reads the default, nothing changes it
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, help="Stop after so many.")
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", "-e", help="Stop when all there is has been read.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0, metavar="SECONDS", help="Stop after so long without a message."),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            help="As kcat's: %t topic, %p partition, %o offset, %k key, %v value, %h headers, %T time in ms.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
    group: Annotated[
        str | None, typer.Option("--group", "-G", help="Read as a member of this group, and commit.")
    ] = None,
    isolation: Annotated[
        str, typer.Option("--isolation", help="read_committed or read_uncommitted.")
    ] = "read_committed",
    properties: Annotated[list[str], typer.Option("--property", hidden=True)] = [],  # noqa: B006
    topic: TopicOption = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Print the messages of a topic."""
    name = chosen_topic(name, topic)
    start = Start(from_beginning, offset, _time_ms(from_time))
    formatter = formatter_of(as_json, format_, properties)
    if group is not None and (partition or start.offset is not None or start.time_ms is not None):
        raise typer.BadParameter("a group decides on partitions and offsets by itself: leave out --group")
    check_reachable(bootstrap_server)
    watch = ClusterWatch(bootstrap_server)
    settings = settings_for(bootstrap_server, command_config) | consumer_settings(group, start, isolation)
    consumer = build(Consumer, settings | {"error_cb": watch.note_error})
    reader = Reader(consumer, formatter, Limits(max_messages, exit_at_end, timeout), watch)
    with failures_told(bootstrap_server, name):
        try:
            reader.attach(name, partition, start, group)
            reader.run()
        finally:
            consumer.close()


def _time_ms(text: str | None) -> int | None:
    try:
        return None if text is None else parse_time_ms(text, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--from-time") from None


def formatter_of(as_json: bool, template: str | None, properties: Iterable[str]) -> Formatter:
    if as_json:
        return message_as_json
    try:
        return compile_format(template if template is not None else kafka_template(properties))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--format") from None


def kafka_template(properties: Iterable[str]) -> str:
    """The format that Kafka's console consumer's --property options ask for."""
    wanted = dict(map(key_value, properties))
    parts = [token for name, token in KAFKA_PRINT_PROPERTIES.items() if wanted.get(name) == "true"]
    if wanted.get("print.value", "true") == "true":
        parts.append("%v")
    return wanted.get("key.separator", "\t").replace("%", "%%").join(parts) + "\n"


def consumer_settings(group: str | None, start: Start, isolation: str) -> Settings:
    return {
        "group.id": group or "odradek-cli",  # librdkafka wants one even where no group is joined
        "enable.auto.commit": group is not None,
        "auto.offset.reset": "earliest" if start.from_beginning else "latest",
        "enable.partition.eof": True,
        "isolation.level": isolation,
    }


class ClusterWatch:
    """Notices when all brokers are gone, and for how long."""

    def __init__(self, bootstrap_server: str) -> None:
        self._bootstrap_server = bootstrap_server
        self._down_since_s: float | None = None
        self._failure: KafkaError | None = None

    def note_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._down_since_s is None:
            self._down_since_s = time.monotonic()
        elif error.code() == KafkaError._AUTHENTICATION or error.fatal():
            self._failure = error

    def note_life(self) -> None:
        self._down_since_s = None

    def check(self, consumer: Consumer) -> None:
        if self._failure is not None:
            raise KafkaException(self._failure)
        if self._down_since_s is None or time.monotonic() - self._down_since_s < UNREACHABLE_LIMIT_S:
            return
        try:
            cluster_metadata(consumer)
        except KafkaException:
            raise CommandError(
                f"{self._bootstrap_server} has been out of reach for {UNREACHABLE_LIMIT_S:g} s"
            ) from None
        self.note_life()


@dataclass
class Reader:
    """The loop: fetch, print, and know when to stop."""

    consumer: Consumer
    formatter: Formatter
    limits: Limits
    watch: ClusterWatch
    count: int = 0
    _unfinished: set[tuple[str, int]] = field(default_factory=set)
    _assigned: bool = False
    _stopped: bool = False
    _is_in_group: bool = False

    def attach(self, topic: str, partitions: Sequence[int], start: Start, group: str | None) -> None:
        known = partition_ids(self.consumer, topic)
        self._is_in_group = group is not None
        if group is not None:
            self.consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
            return
        if missing := set(partitions) - set(known):
            raise CommandError(
                f"{topic} has no partition {min(missing)}: it has {len(known)}, counted from 0"
            )
        positions = start_positions(self.consumer, topic, partitions or known, start)
        self.consumer.assign(positions)
        self._on_assign(self.consumer, positions)

    def _on_assign(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._assigned = True
        self._unfinished |= {(one.topic, one.partition) for one in partitions}

    def _on_revoke(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._unfinished -= {(one.topic, one.partition) for one in partitions}

    def run(self) -> None:
        previous = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._loop()
        except BrokenPipeError:
            # Who read our output has left, as `head` does. The interpreter must not flush it once more.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            typer.echo(f"consumed {count_of_messages(self.count)}", err=True)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopped = True

    def _loop(self) -> None:
        last_message_s = time.monotonic()
        while not self._stopped and not self._is_done():
            count_before = self.count
            for message in self.consumer.consume(self._batch_size(), BATCH_WAIT_S):
                self._take(message)
            if self.count > count_before:
                last_message_s = time.monotonic()
            sys.stdout.buffer.flush()
            self.watch.check(self.consumer)
            if self._is_timed_out(last_message_s):
                return

    def _batch_size(self) -> int:
        """Never more than is wanted: what was fetched and not printed would count as read in a group."""
        left = BATCH_MESSAGES if self.limits.max_messages is None else self.limits.max_messages - self.count
        return min(BATCH_MESSAGES, left)

    def _is_done(self) -> bool:
        if self.limits.max_messages is not None and self.count >= self.limits.max_messages:
            return True
        return self.limits.exit_at_end and self._assigned and not self._unfinished

    def _is_timed_out(self, last_message_s: float) -> bool:
        if self.limits.timeout_s is None or time.monotonic() - last_message_s < self.limits.timeout_s:
            return False
        if self.limits.max_messages is not None and self.count < self.limits.max_messages:
            raise CommandError(f"{self.count} of {self.limits.max_messages} messages came in time")
        return True

    def _take(self, message: Message) -> None:
        """Print a message, or note what came instead of one."""
        where = (message.topic(), message.partition())
        error = message.error()
        if error is None:
            self.watch.note_life()
            self._unfinished.add(where)
            sys.stdout.buffer.write(self.formatter(message))
            self.count += 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self.watch.note_life()
            self._unfinished.discard(where)
        elif not error.retriable() and (self._is_in_group or message.topic() is not None):
            # Without a group, an error that is no partition's is about the group that librdkafka insists
            # on: a cluster without groups, or one that does not let us into this one, can be read all the same.
            raise KafkaException(error)


def start_positions(
    consumer: Any, topic: str, partitions: Iterable[int], start: Start
) -> list[TopicPartition]:
    wanted = [TopicPartition(topic, partition) for partition in partitions]
    if start.time_ms is not None:
        at_time = [TopicPartition(topic, one.partition, start.time_ms) for one in wanted]
        return list(consumer.offsets_for_times(at_time, timeout=REQUEST_TIMEOUT_S))
    return [TopicPartition(topic, one.partition, start_offset(consumer, one, start)) for one in wanted]


def start_offset(consumer: Any, partition: TopicPartition, start: Start) -> int:
    if start.from_beginning or start.offset == "beginning":
        return int(OFFSET_BEGINNING)
    if start.offset is None or start.offset == "end":
        # Asked for now rather than left to librdkafka, so that nothing sent from here on is missed.
        return watermarks(consumer, partition)[1]
    try:
        offset = int(start.offset)
    except ValueError:
        raise typer.BadParameter(f"{start.offset!r} is not an offset", param_hint="--offset") from None
    if offset >= 0:
        return offset
    first, end = watermarks(consumer, partition)
    return max(first, end + offset)


def watermarks(consumer: Any, partition: TopicPartition) -> tuple[int, int]:
    """The first offset there is, and the one the next message gets."""
    first, end = consumer.get_watermark_offsets(partition, timeout=REQUEST_TIMEOUT_S)
    return int(first), int(end)
