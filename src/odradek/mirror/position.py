"""A position: what a transaction has copied of a partition, and so where to go on.

The key is the partition and a slot. The slots of a partition are used like the marks of a ruler: every second
transaction has slot 0, every fourth slot 1, and so on, each in four versions. Compaction keeps the last record of each
key: the last eight transactions of a partition, and of older ones about four for each doubling of their age. That is
enough to translate offsets of groups, however far behind they are (`translation`), and stays small for ever.

Keys and values are JSON, so that any tool can show them; fields that a reader does not know are ignored.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from odradek.client.fetching import NO_EPOCH
from odradek.model import TopicPartition

FORMAT = 1
VERSIONS = 4  # of each slot
NO_TARGET = -1
IDS = ("source_id", "target_id")  # the other fields are numbers


class UnreadablePosition(Exception):
    """A record of the positions' topic that this version cannot read."""


class Copy(NamedTuple):
    """A partition of the source that is copied. `source` is the name of its cluster."""

    source: str
    topic: str
    partition: int

    @property
    def origin(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def transactional_id(self) -> str:
        return f"odradek-mirror.{self.source}.{self.topic}.{self.partition}"

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class Position:
    """A note of what the `number`-th transaction of a partition has copied: the source's offsets `[begin, next)`.

    `target` is the copy's offset of its first record, or NO_TARGET if it is not known or there is no record; `total`
    counts the records of all transactions up to this one.
    """

    source_id: str
    target_id: str
    begin: int
    next: int
    target: int
    records: int
    total: int
    number: int
    origin: int = 0  # the source's offset at which the copy begins
    epoch: int = NO_EPOCH  # the source's leader epoch at the last batch

    @property
    def target_next(self) -> int:
        """The copy has what follows at this offset or later."""
        return self.target + self.records


def slot_of(number: int) -> str:
    assert number > 0, "the first transaction is number 1"
    level = (number & -number).bit_length() - 1
    return f"{level}.{(number >> (level + 1)) % VERSIONS}"


def encode_key(copy: Copy, number: int) -> bytes:
    return json.dumps([*copy, slot_of(number)], separators=(",", ":")).encode()


def encode_position(position: Position) -> bytes:
    return json.dumps({"format": FORMAT, **asdict(position)}, separators=(",", ":")).encode()


def decode_key(key: bytes | None) -> tuple[Copy, str]:
    try:
        source, topic, partition, slot = json.loads(key or b"")
        if [type(one) for one in (source, topic, partition, slot)] != [str, str, int, str]:
            raise ValueError("it does not name a partition and a slot")
        return Copy(source, topic, partition), slot
    except (ValueError, TypeError) as error:
        raise UnreadablePosition(f"the key {key!r} of a position cannot be read: {error}") from None


def decode_position(copy: Copy, value: bytes) -> Position:
    try:
        found: dict[str, Any] = json.loads(value)
        if found["format"] != FORMAT:
            raise UnreadablePosition(
                f"the position of {copy} has format {found['format']}, this version reads {FORMAT}: "
                "use the version that wrote it"
            )
        fields = {name: found[name] for name in Position.__dataclass_fields__ if name in found}
        for name, value in fields.items():
            wanted: type = str if name in IDS else int
            if type(value) is not wanted:
                raise ValueError(f"{name} is {value!r}")
        return Position(**fields)
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadablePosition(f"the position of {copy} cannot be read: {error}") from None
