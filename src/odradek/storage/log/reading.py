"""Reading a whole log from its beginning, to replay it: for metadata and coordinators."""

from collections.abc import Iterator

from odradek.records.walk import Batch, whole_batches
from odradek.storage.log.log import Log

READ_BYTES = 1 << 20


def read_batches(log: Log, read_bytes: int = READ_BYTES, offset: int | None = None) -> Iterator[list[Batch]]:
    """All batches from this offset, or from the log's start, on, a piece of the log at a time."""
    offset = log.log_start_offset if offset is None else offset
    while (piece := log.read(offset, read_bytes, log.end_offset)) is not None:
        batches = list(whole_batches(memoryview(piece.file.read_at(piece.position, piece.length))))
        yield batches
        offset = batches[-1][0].next_offset
