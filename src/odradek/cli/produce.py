"""`odradek produce`: lines of standard input or of files become messages."""

import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from enum import StrEnum
from types import FrameType
from typing import Annotated, Any

from confluent_kafka import Producer

from odradek.cli.access import REQUEST_TIMEOUT_S, Access, on_cluster
from odradek.cli.arguments import MOST_PARTITION, Quiet, key_value, time_ms_of
from odradek.cli.completion import complete_topics
from odradek.cli.danger import Force, check_internal
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Context, Exit, Option
from odradek.cli.output import counted, note
from odradek.cli.produce_input import input_lines, messages, parser_of
from odradek.cli.produce_sender import Pace, Progress, Sender
from odradek.cli.text import OutgoingMessage, unescape
from odradek.errors import KafkaError
from odradek.model import check_topic_name

MESSAGE_TIMEOUT_MS = 30_000
UNKNOWN_TOPIC_TIMEOUT_MS = 10_000
DEFAULT_KEY_SEPARATOR = "\t"
INTERRUPTED = 130


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def complete_first(context: Context, incomplete: str) -> list[Any]:
    """The topic; the other arguments are files, which the shell completes better."""
    return [] if context.params.get("arguments") else complete_topics(context, incomplete)


@on_cluster
def produce(
    cluster: Access,
    arguments: Annotated[
        list[str] | None,
        Argument(
            metavar="TOPIC [FILE]...",
            help="A topic, and files to read; standard input if there are none, or for '-'.",
            complete=complete_first,
        ),
    ] = None,
    key: Annotated[str | None, Option("--key", "-k", metavar="KEY", help="The key of every message.")] = None,
    key_separator: Annotated[
        str | None,
        Option("--key-separator", "-K", metavar="TEXT", help="The text between key and value in a line."),
    ] = None,
    tombstone: Annotated[
        bool,
        Option(
            "--tombstone",
            help="Send messages without a value: one for --key, or one for each line, which is the key.",
        ),
    ] = False,
    header: Annotated[
        list[str] | None, Option("--header", "-H", metavar="NAME=VALUE", help="A header; repeatable.")
    ] = None,
    timestamp: Annotated[
        int | None,
        Option(
            "--timestamp",
            parser=time_ms_of,
            metavar="TIME",
            help="ISO 8601, milliseconds, or relative like -1h.",
        ),
    ] = None,
    partition: Annotated[
        int | None,
        Option(
            "--partition", "-p", min=0, max=MOST_PARTITION, help="The partition; chosen by key if not given."
        ),
    ] = None,
    rate: Annotated[
        float | None,
        Option("--rate", min=0.001, metavar="N", help="At most this many messages per second."),
    ] = None,
    count: Annotated[
        int | None, Option("--count", "-n", min=0, metavar="N", help="Stop after this many messages.")
    ] = None,
    json_lines: Annotated[
        bool, Option("--json", help="Lines are JSON, as 'odradek consume --json' prints them.")
    ] = False,
    acks: Annotated[
        str,
        Option(
            "--acks", metavar="ACKS", help="Wait for: none (0), the leader (1) or all in-sync replicas (all)."
        ),
    ] = "all",
    compression: Annotated[
        Compression, Option("--compression", "-z", help="How to compress batches.")
    ] = Compression.NONE,
    idempotent: Annotated[
        bool, Option("--idempotent", help="Exactly once and in order, even with retries.")
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
    properties: Annotated[list[str] | None, Option("--property", hidden=True)] = None,
    topic: Annotated[str | None, Option("--topic", hidden=True)] = None,
) -> None:
    """Send lines to a topic. Each line of the files, or of standard input, is a message."""
    files = list(arguments or [])
    name = topic or (files.pop(0) if files else None)
    if not name:
        raise BadParameter("name a topic", param_hint="TOPIC")
    if tombstone and (json_lines or key_separator is not None):
        raise BadParameter("--tombstone sends no values: leave out --json and --key-separator")
    check_internal([name], force)
    template = OutgoingMessage(
        value=None,
        key=None if key is None else key.encode(),
        headers=tuple((header_name, value.encode()) for header_name, value in map(key_value, header or ())),
        partition=partition,
        timestamp_ms=timestamp,
    )
    settings = {"acks": acks, "compression.type": compression.value, "enable.idempotence": idempotent}
    sender = make_sender(cluster, name, settings)
    with ExitStack() as stack:
        outgoing: Iterable[OutgoingMessage] = [template]
        if not tombstone or key is None:
            parse = parser_of(template, json_lines, _separator(key_separator, properties or ()), tombstone)
            outgoing = messages(parse, input_lines(files, stack), count)
        send_all(sender, outgoing, Pace(rate), quiet)


def _separator(option: str | None, properties: Iterable[str]) -> bytes | None:
    """The separator of key and value, also as Kafka's console producer has it: --property parse.key=true."""
    kafka = dict(map(key_value, properties))
    if option is None and kafka.get("parse.key") == "true":
        option = kafka.get("key.separator", DEFAULT_KEY_SEPARATOR)
    if option == "":
        raise BadParameter("the separator must not be empty", param_hint="--key-separator")
    return None if option is None else unescape(option).encode()


def make_sender(cluster: Access, topic: str, settings: dict[str, Any]) -> Sender:
    timeouts = {
        "message.timeout.ms": MESSAGE_TIMEOUT_MS,
        "topic.metadata.propagation.max.ms": UNKNOWN_TOPIC_TIMEOUT_MS,
    }
    ours = {name: value for name, value in timeouts.items() if name not in cluster.given}
    producer = cluster.client(Producer, settings | ours)
    if topic not in producer.list_topics(timeout=REQUEST_TIMEOUT_S).topics:
        check_name(topic)
        note(f"{topic} does not exist: the broker will create it with its default settings, if it may")
    return Sender(cluster, topic, producer, MESSAGE_TIMEOUT_MS / 1000)


def check_name(topic: str) -> None:
    try:
        check_topic_name(topic)
    except KafkaError as error:
        raise CommandError(f"{topic}: {error.message}") from None


def send_all(sender: Sender, outgoing: Iterable[OutgoingMessage], pace: Pace, quiet: bool) -> None:
    progress = Progress(sys.stderr.isatty() and not quiet)
    with Interruption() as interruption:
        try:
            for message in interruption.until_asked(outgoing):
                pace.wait(sender.producer)
                sender.send(message)
                progress.show(sender.delivered, sender.sent)
        finally:
            sender.finish()
            progress.clear()
            if not quiet:
                note(f"produced {counted(sender.delivered, 'message')} to {sender.topic}")
    if sender.failure is not None:
        raise CommandError(sender.failure)
    if interruption.is_asked:
        raise Exit(INTERRUPTED)


class Interruption:
    """Ctrl-C and SIGTERM stop reading; messages already read are sent, and counted.

    The exception that interrupts a read is raised nowhere else: in a delivery callback it would lose a count.
    """

    def __init__(self) -> None:
        self.is_asked = False
        self._is_reading = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "Interruption":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.is_asked = True
        if self._is_reading:
            raise KeyboardInterrupt

    def until_asked(self, outgoing: Iterable[OutgoingMessage]) -> Iterator[OutgoingMessage]:
        source = iter(outgoing)
        try:
            while not self.is_asked:
                self._is_reading = True
                message = next(source, None)
                self._is_reading = False
                if message is None:
                    return
                yield message
        except KeyboardInterrupt:
            return
        finally:
            self._is_reading = False
