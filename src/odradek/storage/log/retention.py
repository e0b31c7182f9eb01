"""Deleting the oldest segments of a log: those before its start, too old, or beyond its size limit.

Only whole segments are deleted, oldest first, and none with records at or above the high watermark. The last one can be
deleted only if another replaces it, so an empty one stays, and that of a log that has failed.
Where the log will start can be written before they are deleted: the names of several files do not change in one step,
and a crash may undo any of the changes.
`next_due_ms` says when there will be something to do if nothing is written meanwhile, so that idle logs need not be
looked at.
"""

from collections.abc import Callable
from itertools import zip_longest

from odradek.storage.log.log import Log
from odradek.storage.segments.segment import Segment


def delete_old_segments(log: Log, now_ms: int, high_watermark: int) -> int:
    """Delete the segments that retention does not keep. Returns the number of segments deleted."""
    count = old_segments(log, now_ms, high_watermark)
    if count:
        log.delete_segments(count, now_ms)
    return count


def old_segments(log: Log, now_ms: int, high_watermark: int) -> int:
    """Return how many of the oldest segments retention does not keep."""
    count = _count_while(log, 0, high_watermark, _before_log_start(log))
    if log.config.delete:
        count = _count_while(log, count, high_watermark, _beyond_size(log, count))
        count = _count_while(log, count, high_watermark, _expired(log, now_ms))
    return count


def next_due_ms(log: Log, count: int = 0) -> int | None:
    """Return the time of the first of these: the oldest segment expires, the active one rolls, a producer is
    forgotten. `count` of the oldest ones go now.
    """
    due = []
    oldest = log.segments[count]
    if log.config.delete and log.config.retention_ms >= 0 and oldest.size > 0:
        oldest.load()
        due.append(newest_time_ms(oldest) + log.config.retention_ms + 1)
    if log.active.size > 0:
        due.append(log.active.created_ms + log.active.roll_after_ms + 1)
    if log.producers.next_expiry_ms is not None:
        due.append(log.producers.next_expiry_ms)
    return min(due, default=None)


def newest_time_ms(segment: Segment) -> int:
    """The time from which retention counts: the largest timestamp, or if there is none the segment's creation."""
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms


def _count_while(
    log: Log, count: int, high_watermark: int, condition: Callable[[Segment, Segment | None], bool]
) -> int:
    """`count` of the oldest segments go already: how many if those go too that come next and meet the condition?"""
    for segment, following in zip_longest(log.segments[count:], log.segments[count + 1 :]):
        end_offset = following.base_offset if following else log.end_offset
        must_stay = following is None and (segment.size == 0 or log.failed)
        if high_watermark < end_offset or must_stay or not condition(segment, following):
            break
        count += 1
    return count


def _before_log_start(log: Log) -> Callable[[Segment, Segment | None], bool]:
    return lambda _, following: following is not None and following.base_offset <= log.log_start_offset


def _expired(log: Log, now_ms: int) -> Callable[[Segment, Segment | None], bool]:
    retention_ms = log.config.retention_ms

    def expired(segment: Segment, _: Segment | None) -> bool:
        segment.load()
        return retention_ms >= 0 and now_ms - newest_time_ms(segment) > retention_ms

    return expired


def _beyond_size(log: Log, count: int) -> Callable[[Segment, Segment | None], bool]:
    """Beyond the size that the log has without `count` segments."""
    retention_bytes = log.config.retention_bytes
    size_bytes = sum(segment.size for segment in log.segments[count:])
    excess = size_bytes - retention_bytes if retention_bytes >= 0 else -1

    def beyond(segment: Segment, _: Segment | None) -> bool:
        nonlocal excess
        excess -= segment.size
        return excess >= 0

    return beyond
