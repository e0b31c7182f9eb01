"""How far the copies are behind, by the positions on the target and the ends of the source's logs."""

from dataclasses import dataclass

from odradek.client.cluster import LATEST, Cluster
from odradek.mirror.names import Direction
from odradek.mirror.position import Copy
from odradek.mirror.positions import Positions
from odradek.model import TopicPartition


@dataclass(frozen=True)
class PartitionLag:
    """The fields are those of the JSON output. None: nothing is copied yet."""

    topic: str
    partition: int
    copy: str
    copied_to: int | None
    source_end: int
    lag: int
    records: int  # copied so far


def lags(
    direction: Direction, source: Cluster, positions: Positions, partitions: list[TopicPartition]
) -> list[PartitionLag]:
    """By offsets up to the last stable one: markers of transactions count."""
    ends = source.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True) if partitions else {}
    found = []
    for one in partitions:
        position = positions.read(Copy(direction.source, *one))
        copied_to = None if position is None else position.next
        found.append(
            PartitionLag(
                *one,
                direction.copy_of(one.topic),
                copied_to,
                ends[one],
                max(ends[one] - (copied_to or 0), 0),
                0 if position is None else position.total,
            )
        )
    return found
