"""Reading a segment file that may be damaged: batches front to back, or any intact batch that remains.

`records/walk.py` trusts headers; this module is for recovery, which does not.
"""

from odradek.records.batch import HEADER_SIZE, MAGIC, BatchHeader
from odradek.records.walk import Batch, header_at
from odradek.storage.disk.files import File
from odradek.storage.log.validate import is_plausible

READ_BYTES = 1 << 20
MAGIC_POSITION = 16  # in a batch
MAGIC_BYTE = bytes([MAGIC])


class SegmentScan:
    """Reads the first `size` bytes of a file in large pieces, and returns headers and batches."""

    def __init__(self, file: File, size: int) -> None:
        self._file = file
        self._size = size
        self._piece = memoryview(b"")
        self._start = 0

    def header(self, position: int) -> BatchHeader | None:
        """The header of the whole batch here, if there is one."""
        header = header_at(self._bytes, position, self._size)
        return header if header is not None and is_plausible(header) else None

    def is_intact(self, position: int, header: BatchHeader) -> bool:
        """True if the CRC of the batch here is right."""
        return Batch(header, self._bytes(position, header.size)).has_valid_crc

    def find_intact(self, position: int) -> int | None:
        """Return where the first batch with a valid CRC begins, at any byte from this position on."""
        while position + HEADER_SIZE <= self._size:
            piece = self._file.read_at(position, min(READ_BYTES, self._size - position))
            found = piece.find(MAGIC_BYTE, MAGIC_POSITION)
            while found >= 0:
                start = position + found - MAGIC_POSITION
                header = self.header(start)
                if header is not None and self.is_intact(start, header):
                    return start
                found = piece.find(MAGIC_BYTE, found + 1)
            position += len(piece) - MAGIC_POSITION
        return None

    def _bytes(self, position: int, length: int) -> memoryview:
        at = position - self._start
        if at < 0 or at + length > len(self._piece):
            self._piece = memoryview(self._file.read_at(position, max(length, READ_BYTES)))
            self._start, at = position, 0
        return self._piece[at : at + length]
