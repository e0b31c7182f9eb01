"""Checking a piece of a segment: every batch has its own offset, and the CRC that was computed when it was written.

Pure but for the reads, so that any thread may do it. A piece ends with a batch. The leader epoch of a batch, which the
CRC does not cover, is not compared: a wrong one changes nothing that is read.
"""

from typing import NamedTuple

from odradek.records.batch import HEADER_SIZE, LENGTH_END, LENGTH_OFFSET
from odradek.records.walk import whole_batches
from odradek.storage.disk.files import File

PIECE_BYTES = 64 << 10  # a thread must not keep the interpreter for longer than a millisecond or so


class CheckedPiece(NamedTuple):
    position: int  # where the next piece begins, or the damage
    offset: int  # the next offset
    damage: str = ""  # what is wrong there


def check_piece(file: File, position: int, end: int, expected: int, limit: int) -> CheckedPiece:
    """Look at the batches from this position on, the first of which has the expected offset, or one after it. They are
    all below `limit`. The file must be pinned."""
    start, last = position, None
    for batch in whole_batches(memoryview(_read(file, position, end))):
        header = batch.header
        if not expected <= header.base_offset <= header.last_offset < limit:
            has_gap = last is not None and last[2] and header.base_offset < expected
            at, offset = (last[0], last[1]) if last is not None and has_gap else (position, expected)
            return CheckedPiece(at, offset, "the batch there has the offset of another one")
        if not batch.has_valid_crc:
            return CheckedPiece(position, expected, "the batch there has a wrong CRC")
        last = position, expected, header.base_offset > expected
        position, expected = position + header.size, header.next_offset
    return CheckedPiece(position, expected, "there is no whole batch" if position == start else "")


def _read(file: File, position: int, end: int) -> bytes:
    """Some batches, or one that is larger than a piece."""
    data = file.read_pinned(position, min(PIECE_BYTES, end - position))
    size = min(_size_of_first(data), end - position)
    return data if size <= len(data) else file.read_pinned(position, size)


def _size_of_first(data: bytes) -> int:
    size = LENGTH_END + int.from_bytes(data[LENGTH_OFFSET:LENGTH_END], signed=True)
    return size if len(data) >= HEADER_SIZE and size > HEADER_SIZE else len(data)
