"""`odradek produce`: lines of standard input or of files become messages.

Reading and sending overlap: a line is handed to librdkafka, which batches and sends on its own thread;
where its queue is full, reading waits. The first message that the cluster refuses ends the command, with
the reason, because what follows it would most likely fare no better.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from odradek.cli.clients import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    CommandConfig,
    CommandError,
    TopicOption,
    build,
    check_reachable,
    chosen_topic,
    count_of_messages,
    explain,
    failures_told,
    key_value,
    settings_for,
)
from odradek.cli.text import OutgoingMessage, message_from_json, parse_time_ms, unescape

MESSAGE_TIMEOUT_MS = 30_000
UNKNOWN_TOPIC_TIMEOUT_MS = 10_000
FLUSH_MARGIN_S = 5
DEFAULT_KEY_SEPARATOR = "\t"
INTERRUPTED = 130

Parser = Callable[[bytes], OutgoingMessage]


def produce(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC [FILE]...", show_default=False, help="Files to read; standard input if none."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every message.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="What divides key and value in a line."),
    ] = None,
    header: Annotated[
        list[str], typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; may be repeated.")
    ] = [],  # noqa: B006 - Typer reads the default, nothing changes it
    timestamp: Annotated[
        str | None, typer.Option("--timestamp", help="ISO 8601, milliseconds, or relative like -1h.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Where to; by key if not given.")
    ] = None,
    json_lines: Annotated[
        bool, typer.Option("--json", help="Lines are JSON, as 'odradek consume --json' prints them.")
    ] = False,
    acks: Annotated[
        str, typer.Option("--acks", help="Who must have it before it counts as sent: all, 1 or 0.")
    ] = "all",
    compression: Annotated[
        str, typer.Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    idempotent: Annotated[
        bool, typer.Option("--idempotent", help="Exactly once and in order, over retries.")
    ] = False,
    properties: Annotated[list[str], typer.Option("--property", hidden=True)] = [],  # noqa: B006
    topic: TopicOption = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Send lines to a topic, from files or standard input, one message a line."""
    names = list(arguments or [])
    name = topic or chosen_topic(names.pop(0) if names else None, None)
    template = OutgoingMessage(
        value=None,
        key=None if key is None else key.encode(),
        headers=tuple((header_name, value.encode()) for header_name, value in map(key_value, header)),
        partition=partition,
        timestamp_ms=_timestamp_ms(timestamp),
    )
    parse = parser_of(template, json_lines, _separator(key_separator, properties))
    settings = settings_for(bootstrap_server, command_config) | {
        "acks": acks,
        "compression.type": compression,
        "enable.idempotence": idempotent,
    }
    settings.setdefault("message.timeout.ms", MESSAGE_TIMEOUT_MS)
    settings.setdefault("topic.metadata.propagation.max.ms", UNKNOWN_TOPIC_TIMEOUT_MS)
    check_reachable(bootstrap_server)
    sender = Sender(name, build(Producer, settings), bootstrap_server)
    with ExitStack() as stack:
        send_all(sender, parse, input_lines([Path(file) for file in names], stack))


def _timestamp_ms(text: str | None) -> int | None:
    try:
        return None if text is None else parse_time_ms(text, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--timestamp") from None


def _separator(option: str | None, properties: Iterable[str]) -> bytes | None:
    """The separator of key and value, also as Kafka's console producer has it: --property parse.key=true."""
    kafka = dict(map(key_value, properties))
    if option is None and kafka.get("parse.key") == "true":
        option = kafka.get("key.separator", DEFAULT_KEY_SEPARATOR)
    return None if option is None else unescape(option).encode()


def parser_of(template: OutgoingMessage, json_lines: bool, separator: bytes | None) -> Parser:
    """How a line becomes a message. What the line itself says wins over the template."""

    def from_json_line(line: bytes) -> OutgoingMessage:
        found = message_from_json(line)
        return OutgoingMessage(
            value=found.value,
            key=template.key if found.key is None else found.key,
            headers=found.headers or template.headers,
            partition=template.partition if found.partition is None else found.partition,
            timestamp_ms=template.timestamp_ms if found.timestamp_ms is None else found.timestamp_ms,
        )

    def from_keyed_line(line: bytes) -> OutgoingMessage:
        assert separator is not None
        key, found, value = line.partition(separator)
        if not found:
            raise ValueError(f"no key separator {separator.decode()!r} in the line")
        return replace(template, key=key, value=value)

    def from_line(line: bytes) -> OutgoingMessage:
        return replace(template, value=line)

    if json_lines:
        return from_json_line
    return from_line if separator is None else from_keyed_line


def input_lines(files: Iterable[Path], stack: ExitStack) -> Iterator[tuple[str, int, bytes]]:
    """(source, line number, line without its end); a progress bar where a person watches files go."""
    files = list(files)
    if not files:
        yield from _numbered("standard input", sys.stdin.buffer)
        return
    try:
        opened = [(file, stack.enter_context(file.open("rb"))) for file in files]
    except OSError as error:
        raise CommandError(f"{error.filename}: {(error.strerror or '').lower()}") from None
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
    with progress:
        for file, stream in opened:
            task = progress.add_task(file.name, total=file.stat().st_size)
            for source, number, line in _numbered(str(file), stream):
                yield source, number, line
                progress.advance(task, len(line) + 1)


def _numbered(source: str, stream: BinaryIO) -> Iterator[tuple[str, int, bytes]]:
    for number, line in enumerate(stream, start=1):
        yield source, number, line.removesuffix(b"\n")


def send_all(sender: "Sender", parse: Parser, lines: Iterator[tuple[str, int, bytes]]) -> None:
    interrupted = False
    try:
        for source, number, line in lines:
            try:
                message = parse(line)
            except ValueError as error:
                raise CommandError(f"{source}, line {number}: {error}") from None
            sender.send(message)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        sender.finish()
        typer.echo(f"produced {count_of_messages(sender.delivered)} to {sender.topic}", err=True)
    if sender.failure is not None:
        raise CommandError(sender.failure)
    if interrupted:
        raise typer.Exit(INTERRUPTED)


class Sender:
    """A producer that counts what was delivered and keeps the first failure."""

    def __init__(self, topic: str, producer: Producer, bootstrap_server: str) -> None:
        self.topic = topic
        self.delivered = 0
        self.failure: str | None = None
        self._producer = producer
        self._bootstrap_server = bootstrap_server

    def send(self, message: OutgoingMessage) -> None:
        optional: dict[str, Any] = {}
        if message.partition is not None:
            optional["partition"] = message.partition
        if message.timestamp_ms is not None:
            optional["timestamp"] = message.timestamp_ms
        if message.headers:
            optional["headers"] = list(message.headers)
        while True:
            self._raise_failure()
            try:
                with failures_told(self._bootstrap_server, self.topic):
                    self._producer.produce(
                        self.topic, message.value, message.key, on_delivery=self._delivered, **optional
                    )
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.delivered += 1
        elif self.failure is None:
            self.failure = f"{self.topic}: {self._reason(error)}"

    def _reason(self, error: KafkaError) -> str:
        if error.code() == KafkaError._MSG_TIMED_OUT:
            return f"{self._bootstrap_server} did not take the messages in time"
        return explain(error, self._bootstrap_server)

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise CommandError(self.failure)

    def finish(self) -> None:
        """Wait for what is under way; after a failure the rest is dropped."""
        if self.failure is not None:
            self._producer.purge()
        try:
            self._producer.flush(MESSAGE_TIMEOUT_MS / 1000 + FLUSH_MARGIN_S)
        except KafkaException as error:
            self.failure = self.failure or self._reason(error.args[0])
