"""Walking over record batches by their headers: each header gives the length of its batch, and so the next position.

This is the only place that steps from one batch to the next. The bytes come from `read_at`, a file's or a buffer's,
one piece at a time; a walk that needs only headers never reads the records between them. It ends before a batch that
is cut short, and before bytes that cannot be a batch. Nothing else is checked here: a caller that must know more (a
valid CRC, rising offsets) checks the batches itself.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from odradek.records.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    MIN_LENGTH,
    BatchHeader,
    Buffer,
)
from odradek.records.crc import crc32c

# The bytes at a position, up to a length: fewer at the end.
ReadAt = Callable[[int, int], Buffer]
# Called with a header that cannot be a batch's. It may raise; otherwise the walk ends.
Refuse = Callable[[BatchHeader], None]


class Batch(NamedTuple):
    header: BatchHeader
    data: memoryview  # the whole batch, header included

    @property
    def has_valid_crc(self) -> bool:
        return bool(crc32c(self.data[CRC_START:]) == self.header.crc)


def walk(
    read_at: ReadAt, position: int, end: int, piece_bytes: int, refuse: Refuse | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch between two positions."""
    piece: Buffer = b""
    start = position
    while position + HEADER_SIZE <= end:
        at = position - start
        if at + HEADER_SIZE > len(piece):
            piece, start, at = read_at(position, min(piece_bytes, end - position)), position, 0
            if len(piece) < HEADER_SIZE:
                return
        header = BatchHeader._make(HEADER.unpack_from(piece, at))
        if header.magic != MAGIC or header.length < MIN_LENGTH:
            if refuse is not None:
                refuse(header)
            return
        following = position + LENGTH_END + header.length
        if following > end:
            return
        yield position, header
        position = following


def header_at(read_at: ReadAt, position: int, end: int) -> BatchHeader | None:
    """The header of the batch at this position, if there can be one."""
    for _, header in walk(read_at, position, end, HEADER_SIZE):
        return header
    return None


def whole_batches(data: memoryview, refuse: Refuse | None = None) -> Iterator[Batch]:
    """The batches in these bytes, each with its own. Bytes after the last whole one are left out."""
    size = len(data)
    for position, header in walk(lambda at, length: data[at : at + length], 0, size, size, refuse):
        yield Batch(header, data[position : position + header.size])
