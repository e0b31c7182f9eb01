"""Which log to compact next.

The choice is Kafka's: of the logs whose dirty part is large enough (`min.cleanable.dirty.ratio`), or has
waited too long (`max.compaction.lag.ms`), the one with the largest share of dirty bytes. It is a pure
function of facts about the logs.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from odradek.model import TopicPartition
from odradek.storage.config import NEVER, LogConfig
from odradek.storage.log.log import Log


class SegmentFacts(NamedTuple):
    """Timestamps are looked up only where a lag is configured, and -1 otherwise."""

    base_offset: int
    size: int
    first_timestamp: int
    max_timestamp: int


class LogFacts(NamedTuple):
    """`segments` are all but the active one, which starts at `active_base_offset`."""

    partition: TopicPartition
    config: LogConfig
    segments: Sequence[SegmentFacts]
    active_base_offset: int
    log_start_offset: int
    end_offset: int
    last_stable_offset: int
    clean_offset: int | None  # from the cleaner's checkpoint


class CleaningTarget(NamedTuple):
    """A log with something to clean between two offsets; `overdue` by the maximal compaction lag."""

    partition: TopicPartition
    first_dirty_offset: int
    first_uncleanable_offset: int
    dirty_bytes: int
    dirty_ratio: float
    overdue: bool


def choose(logs: Iterable[LogFacts], now_ms: int) -> CleaningTarget | None:
    """The filthiest log that is worth a round. Leave out the logs that were given up as `uncleanable`."""
    targets = []
    for facts in logs:
        target = examine(facts, now_ms)
        worth_it = target.overdue or target.dirty_ratio > facts.config.min_cleanable_dirty_ratio
        if facts.config.compact and target.dirty_bytes > 0 and worth_it:
            targets.append(target)
    return max(targets, key=lambda target: target.dirty_ratio, default=None)


def examine(facts: LogFacts, now_ms: int) -> CleaningTarget:
    first_dirty = first_dirty_offset(facts)
    dirty = segments_from(facts.segments, first_dirty) if first_dirty < facts.active_base_offset else ()
    limit = uncleanable_limit(facts, dirty, now_ms)
    bases = [segment.base_offset for segment in facts.segments] + [facts.active_base_offset]
    first_uncleanable = max((base for base in bases if base <= limit), default=bases[0])
    dirty_bytes = sum(segment.size for segment in dirty if segment.base_offset < first_uncleanable)
    clean_bytes = sum(segment.size for segment in facts.segments if segment.base_offset < first_dirty)
    total_bytes = dirty_bytes + clean_bytes
    return CleaningTarget(
        facts.partition,
        first_dirty,
        max(first_dirty, first_uncleanable),
        dirty_bytes,
        dirty_bytes / total_bytes if total_bytes else 0.0,
        is_overdue(dirty, facts.config.max_compaction_lag_ms, now_ms),
    )


def first_dirty_offset(facts: LogFacts) -> int:
    """The checkpoint, unless it is outside the log: then everything is dirty."""
    clean_offset = facts.clean_offset
    if clean_offset is None or not facts.log_start_offset <= clean_offset <= facts.end_offset:
        return facts.log_start_offset
    return clean_offset


def segments_from(segments: Sequence[SegmentFacts], offset: int) -> Sequence[SegmentFacts]:
    """The segments from the one with this offset on."""
    before = sum(1 for segment in segments if segment.base_offset <= offset)
    return segments[max(before - 1, 0) :]


def uncleanable_limit(facts: LogFacts, dirty: Sequence[SegmentFacts], now_ms: int) -> int:
    """Not cleaned: the active segment, open transactions, and records younger than the minimal lag."""
    limit = min(facts.last_stable_offset, facts.active_base_offset)
    lag_ms = facts.config.min_compaction_lag_ms
    if lag_ms > 0:
        young = (segment.base_offset for segment in dirty if segment.max_timestamp > now_ms - lag_ms)
        limit = min(limit, next(young, limit))
    return limit


def is_overdue(dirty: Sequence[SegmentFacts], max_lag_ms: int, now_ms: int) -> bool:
    return any(0 < segment.first_timestamp < now_ms - max_lag_ms for segment in dirty)


def facts_of(log: Log, last_stable_offset: int, clean_offset: int | None) -> LogFacts:
    config = log.config
    timed = config.min_compaction_lag_ms > 0 or config.max_compaction_lag_ms != NEVER
    segments = []
    for segment in log.segments[:-1]:
        if timed:
            segment.load()
        segments.append(
            SegmentFacts(segment.base_offset, segment.size, segment.first_timestamp, segment.max_timestamp)
        )
    return LogFacts(
        log.topic_partition,
        config,
        segments,
        log.active.base_offset,
        log.log_start_offset,
        log.end_offset,
        last_stable_offset,
        clean_offset,
    )
