"""Rebuilding the state of a log's producers from its batches: on opening, recovering, truncating."""

from collections.abc import Sequence
from itertools import zip_longest

from odradek.records.batch import BatchHeader
from odradek.storage.producers.markers import read_marker
from odradek.storage.producers.snapshots import Snapshots
from odradek.storage.producers.state import Producers
from odradek.storage.segments.indexes import AbortedTransaction
from odradek.storage.segments.segment import Segment


def replay_batch(
    producers: Producers, segment: Segment, position: int, header: BatchHeader
) -> AbortedTransaction | None:
    """Take note of one batch of a segment. Returns the transaction that it aborted, if it did."""
    if header.producer_id < 0:
        return None
    marker = read_marker(segment.batch_bytes(position, header), header) if header.is_control else None
    aborted = producers.aborted_by(header, header.base_offset, marker) if marker is not None else None
    producers.replay_batch(header, header.base_offset, marker)
    return aborted


def rebuild_producers(
    producers: Producers,
    snapshots: Snapshots,
    segments: Sequence[Segment],
    end_offset: int,
) -> None:
    """The producers as they were at `end_offset`: from the newest snapshot, and the batches since. Those below the
    log's start count too, as long as they are there: a transaction may have begun or ended among them."""
    producers.clear()
    snapshot_offset = snapshots.restore_latest(producers, end_offset)
    from_offset = 0 if snapshot_offset is None else snapshot_offset
    for segment, following in zip_longest(segments, segments[1:]):
        if from_offset < end_offset and (following is None or following.base_offset > from_offset):
            _replay_segment(producers, segment, from_offset, end_offset)


def _replay_segment(producers: Producers, segment: Segment, from_offset: int, end_offset: int) -> None:
    found = segment.locate(from_offset)
    if found is None:
        return
    for position, header in segment.batches(found[0]):
        if header.base_offset >= end_offset:
            return
        if header.last_offset >= from_offset:
            replay_batch(producers, segment, position, header)
