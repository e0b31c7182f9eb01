"""Whether bytes are batches that continue a log: what a follower asks of a leader's answer, and recovery of a
file.

The CRC covers all but the first 21 bytes of a batch. Base offset, length, leader epoch and magic lie before
it, so those are checked for sense: a batch may not begin below the end of the one before it, nor go back to
an older leader epoch.
"""

from collections.abc import Iterator

import crc32c

from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import CRC_START, HEADER_SIZE, MAGIC, MIN_LENGTH, BatchHeader, read_header


def is_plausible(header: BatchHeader) -> bool:
    """What any header says, whatever came before it."""
    return (
        header.magic == MAGIC
        and header.length >= MIN_LENGTH
        and header.base_offset >= 0
        and header.last_offset_delta >= 0
        and 0 <= header.record_count <= header.last_offset_delta + 1
    )


def has_valid_crc(batch: memoryview, header: BatchHeader) -> bool:
    return bool(crc32c.crc32c(batch[CRC_START:]) == header.crc)


def checked_batches(batches: memoryview, end_offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch, all of them checked before the first is given out."""
    found: list[tuple[int, BatchHeader]] = []
    position = 0
    while position + HEADER_SIZE <= len(batches):
        header = read_header(batches, position)
        if not is_plausible(header):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"There is no batch at byte {position} of a fetch")
        if position + header.size > len(batches):
            break
        if not has_valid_crc(batches[position : position + header.size], header):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"The batch at offset {header.base_offset} has a wrong CRC"
            )
        if header.base_offset < end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"A fetched batch begins at offset {header.base_offset}, but the log ends at {end_offset}",
            )
        end_offset = header.next_offset
        found.append((position, header))
        position += header.size
    return iter(found)
