"""Reading a whole log from its beginning, to replay it: for metadata and coordinators.

What is replayed has to be complete and right, so the CRC of each batch is checked, too.
"""

from collections.abc import Iterator

from odradek.records.walk import Batch, whole_batches
from odradek.storage.log.log import Log
from odradek.storage.segments.row import Slice

READ_BYTES = 1 << 20


def read_batches(log: Log, read_bytes: int = READ_BYTES, offset: int | None = None) -> Iterator[list[Batch]]:
    """All batches from this offset, or from the log's start, on, a piece of the log at a time. Raises DamagedSegment
    where one is not as it was written."""
    offset = log.log_start_offset if offset is None else offset
    while (piece := log.read(offset, read_bytes, log.end_offset)) is not None:
        batches = _sound_batches(log, piece, offset)
        yield batches
        offset = batches[-1].header.next_offset


def _sound_batches(log: Log, piece: Slice, offset: int) -> list[Batch]:
    """At least one. If there are some before the damage, the next read finds it."""
    batches: list[Batch] = []
    for batch in whole_batches(memoryview(piece.file.read_at(piece.position, piece.length))):
        if not batch.has_valid_crc:
            break
        batches.append(batch)
    if not batches:
        raise log.damaged_at(piece.file, piece.position, offset, "the batch there has a wrong CRC")
    return batches
