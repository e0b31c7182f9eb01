"""The options of `odradek produce`."""

from enum import StrEnum
from typing import Annotated, Any

from odradek.cli.arguments import MOST_PARTITION, time_ms_of
from odradek.cli.completion import complete_topics
from odradek.cli.framework import Argument, Context, Option


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def complete_first(context: Context, incomplete: str) -> list[Any]:
    """The topic; the other arguments are files, which the shell completes better."""
    return [] if context.params.get("arguments") else complete_topics(context, incomplete)


TopicAndFiles = Annotated[
    list[str] | None,
    Argument(
        metavar="TOPIC [FILE]...",
        help="A topic, and files to read; standard input if there are none, or for '-'.",
        complete=complete_first,
    ),
]
Key = Annotated[str | None, Option("--key", "-k", metavar="KEY", help="The key of every message.")]
KeySeparator = Annotated[
    str | None,
    Option("--key-separator", "-K", metavar="TEXT", help="The text between key and value in a line."),
]
Tombstone = Annotated[
    bool,
    Option(
        "--tombstone",
        help="Send messages without a value: one for --key, or one for each line, which is the key.",
    ),
]
Headers = Annotated[
    list[str] | None, Option("--header", "-H", metavar="NAME=VALUE", help="A header; repeatable.")
]
Timestamp = Annotated[
    int | None,
    Option(
        "--timestamp",
        parser=time_ms_of,
        metavar="TIME",
        help="ISO 8601, milliseconds, or relative like -1h.",
    ),
]
Partition = Annotated[
    int | None,
    Option("--partition", "-p", min=0, max=MOST_PARTITION, help="The partition; chosen by key if not given."),
]
Rate = Annotated[
    float | None, Option("--rate", min=0.001, metavar="N", help="At most this many messages per second.")
]
Count = Annotated[
    int | None, Option("--count", "-n", min=0, metavar="N", help="Stop after this many messages.")
]
JsonLines = Annotated[bool, Option("--json", help="Lines are JSON, as 'odradek consume --json' prints them.")]
Acks = Annotated[
    str,
    Option(
        "--acks", metavar="ACKS", help="Wait for: none (0), the leader (1) or all in-sync replicas (all)."
    ),
]
BatchCompression = Annotated[Compression, Option("--compression", "-z", help="How to compress batches.")]
Idempotent = Annotated[bool, Option("--idempotent", help="Exactly once and in order, even with retries.")]
# Kafka's console producer has the same.
KafkaProperties = Annotated[list[str] | None, Option("--property", hidden=True)]
KafkaTopic = Annotated[str | None, Option("--topic", hidden=True)]
