"""Options and values that several commands take."""

import time
from typing import Annotated

from odradek.admin.message_text import MOST_PARTITION, parse_time_ms
from odradek.cli.completion import complete_topics
from odradek.cli.framework import BadParameter, Option

__all__ = [
    "MOST_OFFSET",
    "MOST_PARTITION",
    "JsonOutput",
    "Quiet",
    "TopicsAndPartitions",
    "key_value",
    "offset_of",
    "time_ms_of",
]

MOST_OFFSET = 2**63 - 1

TopicsAndPartitions = Annotated[
    list[str] | None,
    Option("--topic", metavar="NAME[:0,1,…]", help="A topic; repeatable.", complete=complete_topics),
]
JsonOutput = Annotated[bool, Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Do not print a count at the end.")]


def key_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BadParameter(f"{text!r} is not of the form name=value")
    return name, value


def time_ms_of(text: str) -> int:
    """A time as a user writes it, in milliseconds; bad usage where it is none."""
    try:
        return parse_time_ms(text, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise BadParameter(str(error)) from None


def offset_of(text: str) -> int:
    """A whole number that an offset can be, or a negative one that counts from the end."""
    try:
        offset = int(text)
    except ValueError:
        raise BadParameter(f"{text!r} is not an offset") from None
    if not -MOST_OFFSET <= offset <= MOST_OFFSET:
        raise BadParameter(f"{text} is larger than any offset")
    return offset
