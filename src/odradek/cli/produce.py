"""`odradek produce`: lines of standard input or of files become messages."""

import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from types import FrameType
from typing import Any

from odradek.admin.access import REQUEST_TIMEOUT_S, Access
from odradek.admin.librdkafka import failures_told, kafka, make_client
from odradek.admin.message_text import OutgoingMessage, unescape
from odradek.admin.produce_cause import Quotas
from odradek.cli import produce_options as options
from odradek.cli.access import on_cluster
from odradek.cli.arguments import Quiet, key_value
from odradek.cli.danger import Force, check_internal
from odradek.cli.failures import CommandError
from odradek.cli.framework import BadParameter, Exit
from odradek.cli.output import note
from odradek.cli.produce_input import input_lines, messages, parser_of
from odradek.cli.produce_sender import Pace, Progress, Sender
from odradek.errors import KafkaError
from odradek.model import check_topic_name
from odradek.wording import counted

MESSAGE_TIMEOUT_MS = 30_000
UNKNOWN_TOPIC_TIMEOUT_MS = 10_000
DEFAULT_KEY_SEPARATOR = "\t"
INTERRUPTED = 130
ACKS_ALL = ("all", "-1")


@on_cluster
def produce(
    cluster: Access,
    arguments: options.TopicAndFiles = None,
    key: options.Key = None,
    key_separator: options.KeySeparator = None,
    tombstone: options.Tombstone = False,
    header: options.Headers = None,
    timestamp: options.Timestamp = None,
    partition: options.Partition = None,
    rate: options.Rate = None,
    count: options.Count = None,
    json_lines: options.JsonLines = False,
    acks: options.Acks = "all",
    compression: options.BatchCompression = options.Compression.NONE,
    idempotent: options.Idempotent = False,
    force: Force = False,
    quiet: Quiet = False,
    properties: options.KafkaProperties = None,
    topic: options.KafkaTopic = None,
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
    with failures_told(cluster), ExitStack() as stack:
        sender = make_sender(cluster, name, settings)
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
    quotas = Quotas()
    producer = make_client(cluster, kafka.Producer, settings | ours | {"throttle_cb": quotas.note})
    if topic not in producer.list_topics(timeout=REQUEST_TIMEOUT_S).topics:
        check_name(topic)
        note(f"{topic} does not exist: the broker will create it with its default settings, if it may")
    acks_all = settings["acks"] in ACKS_ALL
    return Sender(cluster, topic, producer, MESSAGE_TIMEOUT_MS / 1000, quotas, acks_all)


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
