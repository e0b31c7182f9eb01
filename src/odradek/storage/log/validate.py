"""Checks that bytes are batches that continue a log: for a follower that checks a leader's response, and for recovery.

The CRC covers all but the first 21 bytes of a batch. Base offset, length, leader epoch and magic are before
it, so those are checked for sense: a batch may not begin below the end of the one before it, nor go back to
an older leader epoch.
"""

from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import BatchHeader
from odradek.records.walk import Batch, whole_batches


def is_plausible(header: BatchHeader) -> bool:
    """True if this may be the header of a batch, whatever came before it."""
    return (
        header.base_offset >= 0
        and header.last_offset_delta >= 0
        and 0 <= header.record_count <= header.last_offset_delta + 1
    )


def checked_batches(data: memoryview, end_offset: int) -> list[Batch]:
    """The whole batches of a fetch, up to the first that is wrong. Raises if that is the first one of all: the next
    fetch begins there, and shows its leader where its log is damaged."""
    found: list[Batch] = []
    try:
        for batch in whole_batches(data, _refuse):
            _check(batch, end_offset)
            end_offset = batch.header.next_offset
            found.append(batch)
    except KafkaError:
        if not found:
            raise
    return found


def _check(batch: Batch, end_offset: int) -> None:
    header = batch.header
    if not is_plausible(header):
        _refuse(header)
    if not batch.has_valid_crc:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"The batch at offset {header.base_offset} has a wrong CRC"
        )
    if header.base_offset < end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"A fetched batch starts at offset {header.base_offset}, but the log ends at {end_offset}",
        )


def _refuse(header: BatchHeader) -> None:
    raise KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"The fetched data is not a batch: its header says {header[:4]}"
    )
