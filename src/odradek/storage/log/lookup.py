"""Finding records by their timestamps: the only lookup that needs to decode batches.

The time index leads to the first batch whose largest timestamp reaches the requested one; which of its
records that is can only be told by decoding that one batch.
"""

import logging
from typing import NamedTuple

from odradek.errors import KafkaError
from odradek.records.batch import LOG_APPEND_TIME, NO_TIMESTAMP, BatchHeader
from odradek.records.record import decode_batch
from odradek.storage.log.log import Log
from odradek.storage.segments.segment import Segment

log = logging.getLogger(__name__)


class FoundRecord(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(log: Log, timestamp: int, upper_offset: int) -> FoundRecord | None:
    """The first record below `upper_offset` whose timestamp is at or after the requested one."""
    start_offset = log.log_start_offset
    for segment in log.segments:
        segment.load()
        if segment.max_timestamp < timestamp:
            continue
        for position, header in segment.locate_timestamp(timestamp, start_offset):
            for found_timestamp, offset in _record_times(segment, position, header):
                if found_timestamp >= timestamp and offset >= start_offset:
                    return (
                        FoundRecord(found_timestamp, offset, header.leader_epoch)
                        if offset < upper_offset
                        else None
                    )
    return None


def offset_of_max_timestamp(log: Log) -> FoundRecord | None:
    """The first record that has the largest timestamp of the log."""
    for segment in log.segments:
        segment.load()
    segment = max(log.segments, key=lambda segment: segment.max_timestamp)
    if segment.max_timestamp == NO_TIMESTAMP:
        return None
    found = segment.locate(segment.max_timestamp_offset)
    if (
        found is None
    ):  # which the time index of a damaged segment says, and nobody could compare with its batches
        assert segment.damage is not None, "a loaded segment has the batch of its largest timestamp"
        raise segment.damage.again()
    position, header = found
    if header.attributes & LOG_APPEND_TIME:
        return FoundRecord(header.max_timestamp, header.last_offset, header.leader_epoch)
    times = _record_times(segment, position, header)
    timestamp, offset = max(times, key=lambda found: (found[0], -found[1]), default=_time_of_batch(header))
    return FoundRecord(timestamp, offset, header.leader_epoch)


def _record_times(segment: Segment, position: int, header: BatchHeader) -> list[tuple[int, int]]:
    """Timestamp and offset of each record of a batch. Produce does not look into every batch it stores, so the
    records of one may turn out to be unreadable: then the timestamp in its header is used."""
    try:
        records = decode_batch(segment.batch_bytes(position, header), header)
    except KafkaError as error:
        log.warning(
            "%s: the records from offset %d to %d cannot be read, using the timestamp of the batch instead: %s",
            segment.log.path, header.base_offset, header.last_offset, error,
        )  # fmt: skip
        return [_time_of_batch(header)]
    return [(record.timestamp, record.offset) for record in records]


def _time_of_batch(header: BatchHeader) -> tuple[int, int]:
    return header.max_timestamp, header.base_offset
