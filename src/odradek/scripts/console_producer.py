"""kafka-console-producer.sh: lines of standard input become messages."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from odradek.admin.access import Access, read_settings
from odradek.admin.librdkafka import explain, failures_told, kafka, make_client
from odradek.scripts.options import Exit, Flag, Given, Parser
from odradek.scripts.running import BOOTSTRAP, warn

FLUSH_S = 60.0
READER = "org.apache.kafka.tools.LineMessageReader"
# A flag, and the setting of the producer that it means.
SETTINGS = {
    "batch-size": "batch.size",
    "compression-codec": "compression.type",
    "message-send-max-retries": "retries",
    "metadata-expiry-ms": "metadata.max.age.ms",
    "request-required-acks": "acks",
    "request-timeout-ms": "request.timeout.ms",
    "retry-backoff-ms": "retry.backoff.ms",
    "timeout": "linger.ms",
    "max-memory-bytes": "buffer.memory",
}
PARSER = Parser(
    "This tool helps to read data from standard input and publish it to Kafka.",
    [
        BOOTSTRAP,
        Flag("topic", "REQUIRED: The topic name to produce messages to.", "topic"),
        Flag("sync", "If set message send requests to the brokers are synchronously."),
        Flag(
            "compression-codec",
            "none, gzip, snappy, lz4 or zstd; gzip without a value.",
            "codec",
            is_optional=True,
        ),
        Flag("batch-size", "Bytes of a batch.", "size", int),
        Flag("message-send-max-retries", "How often to try again.", "Integer", int),
        Flag("retry-backoff-ms", "How long to wait before that.", "Long", int),
        Flag("timeout", "How long to wait for a fuller batch.", "timeout_ms", int),
        Flag("request-required-acks", "0, 1 or all.", "request required acks"),
        Flag("request-timeout-ms", "The ack timeout of the producer requests.", "request timeout ms", int),
        Flag("metadata-expiry-ms", "How often to refresh metadata.", "metadata expiration interval", int),
        Flag("max-memory-bytes", "Memory for records that wait to be sent.", "total memory in bytes", int),
        Flag(
            "reader-property", "parse.key=true, key.separator=…, parse.headers=true, null.marker=….", "prop"
        ),
        Flag("property", "(DEPRECATED) As --reader-property.", "prop"),
        Flag("reader-config", "A file of such properties.", "config file"),
        Flag("command-property", "A setting of the producer.", "producer_prop"),
        Flag("producer-property", "(DEPRECATED) As --command-property.", "producer_prop"),
        Flag("command-config", "A file of settings of the producer.", "config file"),
        Flag("producer.config", "(DEPRECATED) As --command-config.", "config file"),
        Flag("line-reader", "The class that reads lines.", "reader_class", default=READER),
        Flag("max-block-ms", "How long to wait for memory.", "max block on send", int, is_unsupported=True),
        Flag("max-partition-memory-bytes", "(Deprecated)", "memory in bytes", int, is_unsupported=True),
        Flag("socket-buffer-size", "The size of the tcp RECV buffer.", "size", int, is_unsupported=True),
    ],
)


class Message(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


def main(arguments: Sequence[str]) -> int:
    given = PARSER.parse(arguments)
    PARSER.require(given, "bootstrap-server", "topic")
    if given.text("line-reader") != READER:
        raise Exit(1, "Another --line-reader than Kafka's own is not supported by Odradek's scripts")
    settings = producer_settings(given)
    cluster = Access(given.text("bootstrap-server") or "", {}, "console-producer", warn)
    with failures_told(cluster):
        send(cluster, make_client(cluster, kafka.Producer, settings), given)
    return 0


def producer_settings(given: Given) -> dict[str, Any]:
    from odradek.admin.client_names import to_librdkafka

    named = {setting: given.text(flag) or "gzip" for flag, setting in SETTINGS.items() if given.has(flag)}
    for name in ("command-config", "producer.config"):
        if file := given.text(name):
            named |= read_settings(Path(file))
    named |= properties(given, "command-property", "producer-property")
    named.pop("bootstrap.servers", None)
    return dict(to_librdkafka(named))


def properties(given: Given, *names: str) -> dict[str, str]:
    found = {}
    for text in (text for name in names for text in given.values(name)):
        key, equals, value = text.partition("=")
        if not equals:
            raise Exit(1, f"Invalid property: {text}")
        found[key] = value
    return found


def send(cluster: Access, producer: Any, given: Given) -> None:
    reading = read_settings(Path(given.text("reader-config") or "")) if given.has("reader-config") else {}
    reading |= properties(given, "reader-property", "property")
    topic, failures = given.text("topic"), []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(explain(cluster, error, topic))

    for message in messages(reading):
        while True:
            try:
                producer.produce(
                    topic, message.value, message.key, on_delivery=delivered, headers=message.headers
                )
                break
            except BufferError:
                producer.poll(0.1)
        if given.has("sync"):
            producer.flush(FLUSH_S)
        producer.poll(0)
    left = producer.flush(FLUSH_S)
    for failure in dict.fromkeys(failures):
        sys.stderr.write(f"ERROR Error when sending message to topic {topic}: {failure}\n")
    if failures or left:
        raise Exit(1)


def messages(reading: dict[str, str]) -> Iterator[Message]:
    with_key, with_headers = (reading.get(f"parse.{name}") == "true" for name in ("key", "headers"))
    key_separator = _bytes(reading.get("key.separator", "\t"))
    headers_delimiter = _bytes(reading.get("headers.delimiter", "\t"))
    pair, between = (
        _bytes(reading.get("headers.key.separator", ":")),
        _bytes(reading.get("headers.separator", ",")),
    )
    marker = reading.get("null.marker")
    ignores_errors = reading.get("ignore.error") == "true"
    null = None if marker is None else marker.encode()
    interactive = sys.stdin.isatty()
    for number, line in enumerate(_lines(interactive), 1):
        headers: list[tuple[str, bytes]] = []
        key: bytes | None = None
        try:
            if with_headers:
                text, line = _cut(line, headers_delimiter, "headers delimiter", number)
                headers = [_header(one, pair) for one in text.split(between)] if text != null and text else []
            if with_key:
                found, line = _cut(line, key_separator, "key separator", number)
                key = None if found == null else found
        except Exit:
            if not ignores_errors:
                raise
        yield Message(key, None if line == null else line, headers)


def _lines(interactive: bool) -> Iterator[bytes]:
    while True:
        if interactive:
            sys.stdout.write(">")
            sys.stdout.flush()
        line = sys.stdin.buffer.readline()
        if not line:
            return
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _cut(line: bytes, separator: bytes, what: str, number: int) -> tuple[bytes, bytes]:
    before, found, after = line.partition(separator)
    if not found:
        raise Exit(1, f"No {what} found on line number {number}: '{line.decode(errors='replace')}'")
    return before, after


def _header(text: bytes, separator: bytes) -> tuple[str, bytes]:
    name, _, value = text.partition(separator)
    return name.decode(), value


def _bytes(text: str) -> bytes:
    return text.encode()
