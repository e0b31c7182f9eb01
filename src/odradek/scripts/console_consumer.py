"""kafka-console-consumer.sh: print the messages of a topic."""

import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from odradek.admin.access import REQUEST_TIMEOUT_S, Access, read_settings
from odradek.admin.librdkafka import failures_told, kafka, make_client
from odradek.scripts.console_producer import properties
from odradek.scripts.options import UNSUPPORTED, Exit, Flag, Given, Parser
from odradek.scripts.running import BOOTSTRAP, warn

POLL_S = 0.1
BATCH = 500
FORMATTER = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
TEXT = "org.apache.kafka.common.serialization.StringDeserializer"
TIME_TYPES = {1: "CreateTime", 2: "LogAppendTime"}
PARSER = Parser(
    "This tool helps to read data from Kafka topics and outputs it to standard output.",
    [
        BOOTSTRAP,
        Flag("topic", "The topic to consume on.", "topic"),
        Flag(
            "include",
            "Regular expression specifying list of topics to include for consumption.",
            "Java regex",
        ),
        Flag("partition", "The partition to consume from.", "partition", int),
        Flag(
            "offset",
            "The offset to consume from, or earliest, or latest.",
            "consume offset",
            default="latest",
        ),
        Flag("from-beginning", "Start with the earliest message, if the group has no offset."),
        Flag(
            "max-messages", "The maximum number of messages to consume before exiting.", "num_messages", int
        ),
        Flag("timeout-ms", "Exit if no message is available for this long.", "timeout_ms", int),
        Flag("group", "The consumer group id of the consumer.", "consumer group id"),
        Flag("isolation-level", "read_committed or read_uncommitted.", "String", default="read_uncommitted"),
        Flag("skip-message-on-error", "Skip a message that cannot be processed instead of halting."),
        Flag("formatter", "The class that formats messages.", "class", default=FORMATTER),
        Flag("formatter-property", "print.key=true, key.separator=… and others.", "prop"),
        Flag("property", "(DEPRECATED) As --formatter-property.", "prop"),
        Flag("formatter-config", "A file of such properties.", "config file"),
        Flag("command-property", "A setting of the consumer.", "consumer_prop"),
        Flag("consumer-property", "(DEPRECATED) As --command-property.", "consumer_prop"),
        Flag("command-config", "A file of settings of the consumer.", "config file"),
        Flag("consumer.config", "(DEPRECATED) As --command-config.", "config file"),
        Flag("key-deserializer", "Only of strings.", "deserializer for key", default=TEXT),
        Flag("value-deserializer", "Only of strings.", "deserializer for values", default=TEXT),
        Flag("enable-systest-events", "Log lifecycle events.", is_unsupported=True),
    ],
)

Format = Callable[[Any], bytes]


def main(arguments: Sequence[str]) -> int:
    given = PARSER.parse(arguments)
    PARSER.require(given, "bootstrap-server")
    check(given)
    cluster = Access(given.text("bootstrap-server") or "", {}, "console-consumer", warn)
    with failures_told(cluster):
        consumer = make_client(cluster, kafka.Consumer, consumer_settings(given))
        try:
            return read(consumer, given)
        finally:
            consumer.close()


def check(given: Given) -> None:
    if given.has("topic") == given.has("include"):
        PARSER.fail("Exactly one of --include/--topic is required. ")
    if given.has("partition") and not given.has("topic"):
        PARSER.fail("The topic is required when partition is specified.")
    if given.has("offset") and not given.has("partition"):
        PARSER.fail("The partition is required when offset is specified.")
    if given.has("from-beginning") and given.has("offset"):
        PARSER.fail("from-beginning and offset cannot be specified together.")
    if given.has("partition") and given.has("group"):
        PARSER.fail("Options group and partition cannot be specified together.")
    for name, known in (("formatter", FORMATTER), ("key-deserializer", TEXT), ("value-deserializer", TEXT)):
        if given.text(name) != known:
            raise Exit(1, f"Option --{name} with {given.text(name)} is {UNSUPPORTED}")


def consumer_settings(given: Given) -> dict[str, Any]:
    from odradek.admin.client_names import to_librdkafka

    named: dict[str, str] = {}
    for name in ("command-config", "consumer.config"):
        if file := given.text(name):
            named |= read_settings(Path(file))
    named |= properties(given, "command-property", "consumer-property")
    named.pop("bootstrap.servers", None)
    group = given.text("group") or named.get("group.id")
    return {
        "group.id": group or f"console-consumer-{uuid4().int % 100_000}",
        "enable.auto.commit": group is not None,
        "auto.offset.reset": "earliest" if given.has("from-beginning") else "latest",
        "isolation.level": given.text("isolation-level"),
        **to_librdkafka(named),
    }


def read(consumer: Any, given: Given) -> int:
    stopped: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stopped.append(number))
    begin(consumer, given)
    form, most, timeout_ms = formatter(given), given.number("max-messages"), given.number("timeout-ms")
    count, last_s, status = 0, time.monotonic(), 0
    while not stopped and (most is None or most < 0 or count < most):
        wanted = BATCH if most is None or most < 0 else min(BATCH, most - count)
        for message in consumer.consume(wanted, POLL_S):
            error = message.error()
            if error is None:
                count, last_s = count + 1, time.monotonic()
                sys.stdout.buffer.write(form(message))
            elif not error.retriable() and not given.has("skip-message-on-error"):
                raise kafka.KafkaException(error)
        sys.stdout.buffer.flush()
        if timeout_ms is not None and time.monotonic() - last_s > timeout_ms / 1000:
            sys.stderr.write("Error processing message, terminating consumer process: TimeoutException\n")
            break
    sys.stderr.write(f"Processed a total of {count} messages\n")
    return status


def begin(consumer: Any, given: Given) -> None:
    if given.has("partition"):
        consumer.assign(
            [kafka.TopicPartition(given.text("topic"), given.number("partition"), start_of(given))]
        )
    elif given.has("include"):
        consumer.subscribe([f"^({given.text('include')})$"])
    elif given.has("group"):
        consumer.subscribe([given.text("topic")])
    else:  # nobody else is in the group: it need not form
        topic = consumer.list_topics(given.text("topic"), timeout=REQUEST_TIMEOUT_S).topics[
            given.text("topic")
        ]
        if topic.error is not None:
            consumer.subscribe([given.text("topic")])
            return
        start = kafka.OFFSET_BEGINNING if given.has("from-beginning") else kafka.OFFSET_END
        consumer.assign([kafka.TopicPartition(topic.topic, one, start) for one in topic.partitions])


def start_of(given: Given) -> int:
    text = "earliest" if given.has("from-beginning") else given.text("offset") or "latest"
    named = {"earliest": kafka.OFFSET_BEGINNING, "latest": kafka.OFFSET_END}
    try:
        return int(named[text] if text in named else int(text))
    except ValueError:
        PARSER.fail(
            f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a "
            "non-negative long."
        )


def formatter(given: Given) -> Format:
    """The format that the properties ask for, as Kafka's DefaultMessageFormatter has it."""
    asked = read_settings(Path(given.text("formatter-config") or "")) if given.has("formatter-config") else {}
    asked |= properties(given, "formatter-property", "property")
    shown = {
        name: asked.get(f"print.{name}") == "true" for name in ("timestamp", "partition", "offset", "epoch")
    }
    shown |= {name: asked.get(f"print.{name}") == "true" for name in ("headers", "key", "delivery")}
    shown["value"] = asked.get("print.value", "true") == "true"
    separator = asked.get("key.separator", "\t").encode()
    end = asked.get("line.separator", "\n").encode()
    null = asked.get("null.literal", "null").encode()
    between = asked.get("headers.separator", ",").encode()

    def form(message: Any) -> bytes:
        kind, time_ms = message.timestamp()
        parts = []
        if shown["timestamp"]:
            parts.append(f"{TIME_TYPES.get(kind, 'NoTimestampType')}:{time_ms}".encode())
        if shown["partition"]:
            parts.append(f"Partition:{message.partition()}".encode())
        if shown["offset"]:
            parts.append(f"Offset:{message.offset()}".encode())
        if shown["headers"]:
            headers = message.headers() or []
            listed = [name.encode() + b":" + (null if value is None else value) for name, value in headers]
            parts.append(between.join(listed) or b"NO_HEADERS")
        if shown["key"]:
            parts.append(null if message.key() is None else message.key())
        if shown["value"]:
            parts.append(null if message.value() is None else message.value())
        return separator.join(parts) + end

    return form
