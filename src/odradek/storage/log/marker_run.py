"""A run of markers: the ends of several producers' transactions, which go into one segment with one write.

All are checked before anything is written, and the producers' state changes once it is: so a producer must not be in a
run twice, and a run that cannot be written leaves nothing to be put back. Aborts are left to be appended one by one,
because each of them has an entry in the index of aborted transactions too.
"""

from collections.abc import Sequence

from odradek.errors import KafkaError
from odradek.records.batch import BatchHeader, read_header
from odradek.records.control import MARKER_BATCH_SIZE, build_marker_batch
from odradek.storage.log.run import AppendResult
from odradek.storage.producers.markers import Marker, TransactionEnd
from odradek.storage.producers.state import Producers
from odradek.storage.segments.segment import Segment


class MarkerRun:
    """Once placed, `results` has one for each end: the offset that has to be committed for it, or why it is refused.
    `placed` and `stored`, in step, are only for those to be written."""

    __slots__ = ("_ends", "_headers", "_producers", "placed", "results", "stored")

    def __init__(self, ends: Sequence[TransactionEnd], producers: Producers) -> None:
        self._ends = ends
        self._producers = producers
        self._headers: list[tuple[BatchHeader, Marker]] = []
        self.results: list[int | KafkaError] = []
        self.placed: list[memoryview] = []
        self.stored: list[AppendResult] = []

    def fits_into(self, segment: Segment, end_offset: int, now_ms: int, segment_bytes: int) -> bool:
        """True if only the write itself can keep the run from going into this segment."""
        ends, size = self._ends, len(self._ends) * MARKER_BATCH_SIZE
        return (
            segment.first_timestamp >= 0
            and all(end.is_commit for end in ends)
            and len({end.producer_id for end in ends}) == len(ends)
            and segment.has_room(size, end_offset + len(ends), now_ms, now_ms, segment_bytes)
            and segment.has_index_room(size)
        )

    def place(self, base_offset: int, leader_epoch: int, now_ms: int) -> None:
        for end in self._ends:
            try:
                if self._producers.is_repeated_marker(
                    end.producer_id, end.producer_epoch, end.transaction_version
                ):
                    self.results.append(base_offset - 1)
                    continue
                batch = marker_batch(end, now_ms, base_offset, leader_epoch)
                header, marker = read_header(batch), marker_of(end)
                self._producers.check_batch(batch, header, False, marker=marker)
            except KafkaError as error:
                self.results.append(error)
                continue
            self.results.append(base_offset)
            self.placed.append(memoryview(batch))
            self.stored.append(AppendResult(base_offset, base_offset, False, now_ms))
            self._headers.append((header, marker))
            base_offset += 1

    def replay(self) -> None:
        """It is in the log."""
        for (header, marker), stored in zip(self._headers, self.stored, strict=True):
            self._producers.replay_marker(header, stored.base_offset, marker)


def marker_batch(end: TransactionEnd, now_ms: int, base_offset: int = 0, leader_epoch: int = 0) -> bytearray:
    return build_marker_batch(
        commit=end.is_commit,
        coordinator_epoch=end.coordinator_epoch,
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        timestamp=now_ms,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def marker_of(end: TransactionEnd) -> Marker:
    return Marker(not end.is_commit, end.coordinator_epoch)
