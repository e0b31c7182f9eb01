"""A run: batches of clients that go into one segment with one write.

Each is checked against the state of its producer, which includes the batches before it in the run. So the producers'
state is updated while the run is built, and put back if it cannot be written.
"""

from collections.abc import Sequence
from typing import NamedTuple

from odradek.errors import KafkaError
from odradek.records.batch import BatchHeader, patch_placement
from odradek.storage.producers.state import ProducedBatch, Producer, Producers
from odradek.storage.segments.segment import Segment


class AppendResult(NamedTuple):
    """A repeated batch is not stored again: `base_offset` and `timestamp` are those of the first time."""

    base_offset: int
    last_offset: int
    duplicate: bool
    timestamp: int


def duplicate_of(batch: ProducedBatch) -> AppendResult:
    return AppendResult(batch.base_offset, batch.last_offset, True, batch.timestamp)


class Run:
    """Once placed, `results` has one for each batch; `placed` and `stored`, in step, only for those to be written."""

    __slots__ = ("_batches", "_before", "_producers", "placed", "results", "stored")

    def __init__(self, batches: Sequence[tuple[memoryview, BatchHeader]], producers: Producers) -> None:
        self._batches = batches
        self._producers = producers
        self._before: dict[int, Producer | None] = {}  # the producers as the run found them
        self.results: list[AppendResult | KafkaError] = []
        self.placed: list[memoryview] = []
        self.stored: list[AppendResult] = []

    def fits_into(self, segment: Segment, end_offset: int, now_ms: int, segment_bytes: int) -> bool:
        """True if only the write itself can keep the run from going into this segment. If the segment's age is not
        known, a batch of the run might be too young to go in with the first."""
        if segment.first_timestamp < 0:
            return False
        size = sum([len(batch) for batch, _ in self._batches])
        last_offset = end_offset + sum([header.record_count for _, header in self._batches])
        newest = max([header.max_timestamp for _, header in self._batches])
        return segment.has_room(size, last_offset, newest, now_ms, segment_bytes) and segment.has_index_room(
            size
        )

    def place(self, base_offset: int, leader_epoch: int) -> None:
        """Check the batches, and patch offset and leader epoch into those that may be appended."""
        results, stored, placed = self.results, self.stored, self.placed
        for batch, header in self._batches:
            if header.producer_id >= 0 and (refused := self._check(header, base_offset)) is not None:
                results.append(refused)
                continue
            patch_placement(batch, base_offset, header.length, leader_epoch)
            last_offset = base_offset + header.last_offset_delta
            appended = AppendResult(base_offset, last_offset, False, header.max_timestamp)
            results.append(appended)
            stored.append(appended)
            placed.append(batch)
            base_offset = last_offset + 1

    def _check(self, header: BatchHeader, base_offset: int) -> AppendResult | KafkaError | None:
        """Return None if this batch may be appended; its producer's state then includes it already."""
        producers, producer_id = self._producers, header.producer_id
        if producer_id not in self._before:
            self._before[producer_id] = producers.copy_of(producer_id)
        try:
            repeated = producers.check(header, True)
        except KafkaError as error:
            return error
        if repeated is not None:
            return duplicate_of(repeated)
        producers.replay(header, base_offset)
        return None

    def take_back(self) -> None:
        self._producers.put_back(self._before)
