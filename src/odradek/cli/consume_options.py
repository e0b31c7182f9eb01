"""The options of `odradek consume`."""

from enum import StrEnum
from typing import Annotated

from odradek.cli.arguments import MOST_PARTITION
from odradek.cli.completion import complete_groups, complete_topics
from odradek.cli.framework import Argument, Option


class Isolation(StrEnum):
    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


Topics = Annotated[
    list[str] | None,
    Argument(
        metavar="TOPIC...",
        help="Topics; '^…' is a regular expression, matched against the beginning of their names.",
        complete=complete_topics,
    ),
]
FromBeginning = Annotated[
    bool, Option("--from-beginning", help="Start at the oldest message, instead of reading only new ones.")
]
Offset = Annotated[
    str | None,
    Option(
        "--offset",
        "-o",
        metavar="WHERE",
        help="Start at: earliest, latest, an offset, -N for the last N, @TIME; or A:B, from A to before B.",
    ),
]
FromTime = Annotated[
    str | None,
    Option(
        "--from-time",
        metavar="TIME",
        help="Start at a time, as -o @TIME: ISO 8601, milliseconds, or relative like -1h.",
    ),
]
Until = Annotated[
    str | None,
    Option("--until", metavar="TIME|latest", help="Stop at that time, or at the current end."),
]
Partitions = Annotated[
    list[int] | None,
    Option("--partition", "-p", min=0, max=MOST_PARTITION, help="Only this partition; repeatable."),
]
Filters = Annotated[
    list[str] | None,
    Option(
        "--filter",
        "-F",
        metavar="CONDITION",
        help="Only messages that match: key=a, value~regex, header.NAME=b, value.$.json.path>1, or text in the "
        "value; repeatable.",
    ),
]
MaxMessages = Annotated[
    int | None, Option("--max-messages", "-n", min=1, help="Stop after printing this many.")
]
ExitAtEnd = Annotated[bool, Option("--exit-at-end", "-e", help="Stop at the end of the topics.")]
Timeout = Annotated[
    float | None,
    Option("--timeout", min=0, metavar="SECONDS", help="Stop after this long without a message."),
]
Format = Annotated[
    str | None,
    Option(
        "--format",
        "-f",
        metavar="TEXT",
        help="As in kcat: %t topic, %p partition, %o offset, %k key, %v value, %h headers, %T time in ms, "
        "%K and %S length of key and value.",
    ),
]
Null = Annotated[str, Option("--null", metavar="TEXT", help="Text for a missing key or value.")]
AsJson = Annotated[bool, Option("--json", help="Print one JSON object per line.")]
Group = Annotated[
    str | None,
    Option(
        "--group",
        "-G",
        metavar="NAME",
        help="Read as a member of this group, and commit offsets.",
        complete=complete_groups,
    ),
]
IsolationLevel = Annotated[Isolation, Option("--isolation", help="Whether to print only committed messages.")]
# Kafka's console consumer has the same.
KafkaProperties = Annotated[list[str] | None, Option("--property", hidden=True)]
KafkaTopics = Annotated[list[str] | None, Option("--topic", hidden=True)]
