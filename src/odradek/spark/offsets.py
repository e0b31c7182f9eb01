"""Offsets of many partitions, as Spark's checkpoints keep them, and calculations with them.

In a checkpoint they are `{"topic": {"0": 23}}`, which is what Spark's JVM connector writes there: a query can
switch from one to the other. Keys are sorted, because Spark compares the text, and a changed order would be a
new batch.

Spark journals where a batch ends, before it runs, but never where a query started; after a crash it would ask for that
again, and `latest` would be another offset. So the first entry with a partition also says from which offset it is
read, in one more key with an empty value: `"(from a:0=23,1=0 b:0=5)": {}`. That cannot be a topic's name, and the JVM
connector reads it as a topic without partitions.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odradek.model import TopicPartition

START_MARK = "(from"

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets [start, end) of a partition: the work of one task."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def to_checkpoint(
    offsets: Mapping[TopicPartition, int], begun: Mapping[TopicPartition, int] | None = None
) -> dict[str, Any]:
    """`begun`: where partitions start that no earlier entry has; None if there are none."""
    topics: dict[str, dict[str, int]] = {} if begun is None else {_start_mark(begun): {}}
    for partition in sorted(offsets):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return topics


def _start_mark(begun: Mapping[TopicPartition, int]) -> str:
    topics: dict[str, list[str]] = {}
    for partition in sorted(begun):
        topics.setdefault(partition.topic, []).append(f"{partition.partition}={begun[partition]}")
    return " ".join([START_MARK, *(f"{topic}:{','.join(rows)}" for topic, rows in topics.items())]) + ")"


def begun_in(stored: Mapping[str, Mapping[str, int]]) -> Offsets | None:
    """Return where the partitions start that are new in this entry; None if it does not say."""
    return next((_parse_start_mark(key) for key in stored if key.startswith(START_MARK)), None)


def _parse_start_mark(mark: str) -> Offsets:
    begun: Offsets = {}
    for part in mark.removeprefix(START_MARK).removesuffix(")").split():
        topic, _, rows = part.partition(":")
        for row in rows.split(","):
            partition, _, offset = row.partition("=")
            begun[TopicPartition(topic, int(partition))] = int(offset)
    return begun


def from_checkpoint(stored: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in stored.items()
        for partition, offset in partitions.items()
    }


def parse_offsets(text: str, expected: str) -> Offsets:
    """`{"topic": {"0": 23}}`, as in an option. ValueError says what was expected."""
    try:
        topics = json.loads(text)
        return {
            TopicPartition(topic, int(partition)): _whole(offset)
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f"expected {expected}; got {text}") from None


def parse_partitions(text: str) -> list[TopicPartition]:
    """`{"topic": [0, 1]}`."""
    try:
        topics = json.loads(text)
        return sorted(TopicPartition(topic, _whole(one)) for topic, all_ in topics.items() for one in all_)
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f'expected for example {{"topicA":[0,1],"topicB":[0,1]}}, got {text}') from None


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def share_out(limit: int, start: Offsets, end: Offsets) -> Offsets:
    """Ends of a batch of about `limit` rows, in proportion to the backlog of each partition.

    A partition with a backlog gets at least one row, so a small one next to a large one never starves.
    """
    waiting = {key: size for key in end if (size := end[key] - start.get(key, end[key])) > 0}
    total = sum(waiting.values())
    if total == 0:
        return dict(end)
    limited = dict(end)
    for partition, size in waiting.items():
        share = limit * (size / total)
        rows = math.ceil(share) if share < 1 else math.floor(share)
        limited[partition] = min(end[partition], start[partition] + rows)
    return limited


def split_ranges(
    ranges: list[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Ranges cut so that none has more than `max_records` and there are about `min_partitions` of them."""
    pieces = [one for one in ranges if one.size > 0]
    if max_records is not None:
        pieces = [part for one in pieces for part in _cut(one, math.ceil(one.size / max_records))]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(one.size for one in pieces)
    small = [one for one in pieces if _parts_of(one.size, total, min_partitions) == 1]
    total_of_large = total - sum(one.size for one in small)
    parts_of_large = max(min_partitions - len(small), 1)
    return [
        part
        for one in pieces
        for part in _cut(one, 1 if one in small else _parts_of(one.size, total_of_large, parts_of_large))
    ]


def _parts_of(size: int, total: int, wanted: int) -> int:
    return max(math.floor(size / total * wanted + 0.5), 1)


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    cut, start = [], whole.start
    for left in range(parts, 0, -1):
        end = start + (whole.end - start) // left
        if end > start:
            cut.append(OffsetRange(whole.partition, start, end))
        start = end
    return cut
