"""A view of the 61-byte header of every record batch (format v2).

The broker's whole work on the hot path is done here: a batch is checked, given its offset and leader
epoch, and stored, without looking at the records in it. Base offset, length and leader epoch are before
the CRC and not covered by it, which is why they may be patched in place.

    0  base offset        int64      | not covered by the CRC
    8  length             int32      | of what follows this field
   12  leader epoch       int32      |
   16  magic              int8       | always 2
   17  CRC-32C            uint32     | of all that follows
   21  attributes         int16      bits 0-2 codec, 3 log append time, 4 transactional, 5 control,
                                     6 delete horizon (kept in the base timestamp)
   23  last offset delta  int32
   27  base timestamp     int64
   35  max timestamp      int64
   43  producer id        int64      -1: none
   51  producer epoch     int16
   53  base sequence      int32
   57  record count       int32
   61  records
"""

from struct import Struct
from typing import NamedTuple

HEADER = Struct(">qiibIhiqqqhii")
BEFORE_CRC = Struct(">qiibI")  # its two parts: up to the CRC, and what the CRC covers
COVERED = Struct(">hiqqqhii")
HEADER_SIZE = HEADER.size
assert HEADER_SIZE == 61

LENGTH_OFFSET = 8
LENGTH_END = 12
CRC_OFFSET = 17
CRC_START = 21  # the CRC covers the bytes from here on
MIN_LENGTH = HEADER_SIZE - LENGTH_END
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

_PLACEMENT = Struct(">qii")

Buffer = bytes | bytearray | memoryview
new_tuple = tuple.__new__


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return LENGTH_END + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def last_sequence(self) -> int:
        """Sequences wrap from 2^31 - 1 to 0."""
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The caller has checked that 61 bytes are there."""
    return new_tuple(BatchHeader, HEADER.unpack_from(buffer, position))  # `_make` would take twice as long


def patch_placement(buffer: bytearray | memoryview, base_offset: int, length: int, leader_epoch: int) -> None:
    """The batch's offset and leader epoch: the 16 bytes before the magic. `length` does not change."""
    _PLACEMENT.pack_into(buffer, 0, base_offset, length, leader_epoch)
