"""What a replica gets of a partition: the log up to its end, and how far it is committed.

The followers of a partition ask for the same records, one right after the other, when a write has woken them all. So
the last read is kept, with the records themselves, and the next follower gets the same. Only small reads are kept: a
large one is a slice of a file, which may be gone when it is asked for again.
"""

from odradek.net.output import COPY_BELOW, read_from_memory
from odradek.replication.leader import Leader
from odradek.wire.fetch_response import FetchedPartition

NOTHING = FetchedPartition(-1, 0)


class ReplicaReads:
    """Of all replicas that fetch from this node."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()  # of the last read: all that it depends on
        self._last = NOTHING

    def read(self, leader: Leader, offset: int, max_bytes: int, minimum_one: bool) -> FetchedPartition:
        """Raises KafkaError, CannotOpen."""
        log = leader.log
        end, high_watermark, start = log.end_offset, leader.high_watermark, log.log_start_offset
        key = (leader, offset, end, high_watermark, start, max_bytes, minimum_one)
        if key == self._key:
            return self._last
        piece = log.read(offset, max_bytes, end, minimum_one) if max_bytes > 0 or minimum_one else None
        data: bytearray | None = None
        if piece is not None:
            piece.file.ensure_open()
            data = read_from_memory(piece) if piece.length < COPY_BELOW else None
        index, stable = leader.topic_partition.partition, leader.last_stable_offset
        length = piece.length if piece is not None else 0
        read = FetchedPartition(index, 0, high_watermark, stable, start, None, data or piece, length)
        if data is not None:
            self._key, self._last = key, read
        return read
