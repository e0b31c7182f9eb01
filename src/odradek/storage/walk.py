"""Walking over the batches of a segment file by their headers.

A batch is found from the one before it: its header tells how long it is. Nothing here checks a CRC; a
header that cannot be one (wrong magic, impossible length, cut short) ends the walk. Recovery, which must
know more, is in `recovery.py`.
"""

from collections.abc import Iterator

from odradek.records.batch import HEADER, HEADER_SIZE, LENGTH_END, MAGIC, MIN_LENGTH, BatchHeader
from odradek.storage.files import File

LOOKUP_CHUNK_BYTES = 8 << 10
SCAN_CHUNK_BYTES = 256 << 10


def walk(
    file: File, position: int, end: int, chunk_bytes: int = LOOKUP_CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch between two positions."""
    chunk, chunk_position = b"", position
    while position + HEADER_SIZE <= end:
        at = position - chunk_position
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_position, at = file.read_at(position, min(chunk_bytes, end - position)), position, 0
            if len(chunk) < HEADER_SIZE:
                return
        header = BatchHeader._make(HEADER.unpack_from(chunk, at))
        if header.magic != MAGIC or header.length < MIN_LENGTH:
            return
        following = position + LENGTH_END + header.length
        if following > end:
            return
        yield position, header
        position = following


def header_at(file: File, position: int, end: int) -> BatchHeader | None:
    """The header at this position, if there can be one."""
    for _, header in walk(file, position, end, HEADER_SIZE):
        return header
    return None
