"""The lag of the copies, by the positions on the target and the ends of the source's logs."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from odradek.client.cluster import EARLIEST, LATEST, Cluster
from odradek.mirror.names import Direction
from odradek.mirror.position import Copy, Position
from odradek.mirror.positions import Positions
from odradek.model import TopicPartition


@dataclass(frozen=True)
class PartitionLag:
    """The fields are those of the JSON output. None: nothing is copied yet, or the source does not say."""

    topic: str
    partition: int
    copy: str
    copied_to: int | None
    source_end: int | None
    lag: int | None
    records: int  # copied so far
    copied_at_ms: int | None  # when the last transaction was written


def lags(
    direction: Direction, source: Cluster, positions: Positions, partitions: Sequence[TopicPartition]
) -> list[PartitionLag]:
    """Measure in offsets up to the last stable one: markers of transactions count."""
    asked = dict.fromkeys(partitions, EARLIEST)
    starts = source.list_offsets(asked) if partitions else {}
    ends = source.list_offsets(dict.fromkeys(asked, LATEST), read_committed=True) if partitions else {}
    copies = {one: Copy(direction.source, *one) for one in partitions}
    kept = positions.kept_of(copies.values())
    return [
        _lag(direction, positions, copy, kept[copy], starts[one], ends[one]) for one, copy in copies.items()
    ]


def last_known(direction: Direction, positions: Positions, existing: Collection[str]) -> list[PartitionLag]:
    """Return what the target says alone, while the source is away. `existing` are the target's topics."""
    copies = [one for one in positions.copies(direction.source) if direction.copy_of(one.topic) in existing]
    kept = positions.kept_of(copies)
    return [_lag(direction, positions, one, kept[one]) for one in copies]


def _lag(
    direction: Direction,
    positions: Positions,
    copy: Copy,
    kept: list[Position],
    start: int = 0,
    end: int | None = None,
) -> PartitionLag:
    newest = max(kept, key=lambda one: one.number, default=None)
    copied_to = None if newest is None else newest.next
    return PartitionLag(
        copy.topic,
        copy.partition,
        direction.copy_of(copy.topic),
        copied_to,
        end,
        None if end is None else max(end - (start if copied_to is None else copied_to), 0),
        0 if newest is None else newest.total,
        None if newest is None else positions.written_ms(copy),
    )
