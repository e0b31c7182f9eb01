"""Which records a query failed on, found by trial.

A record that decodes well may still make a query fail: a cast, a division, a function of the user's, a row that
the sink's topic refuses. The failed batch is known from the checkpoint, by its offsets. Its records are read once and
held; the query is run over them as a batch that writes nothing. If that fails too, its halves are tried, and so on,
until single records are left. They become dead letters, and the query is told to skip them.

Only records of topics can be found this way. Errors that need several records together are not found, and end the run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.definition import Pipeline
from odradek.pipeline.kinds.registry import source_kinds
from odradek.spark.offsets import begun_in, from_checkpoint

MAX_RECORDS = 100
Frame = TypeVar("Frame")

Ranges = list["Range"]
Limits = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Range:
    """Offsets [start, end) of a partition."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class BadRecord:
    source: str
    topic: str
    partition: int
    offset: int
    reason: str


class TooMany(Exception):
    """Too many records fail to find them one by one."""


def batch_in_flight(pipeline: Pipeline, checkpoint: Checkpoint, kind: str, name: str) -> dict[str, Ranges]:
    """Return, by source, what the query's unfinished batch reads; empty if there is none."""
    progress = checkpoint.progress(kind, name)
    if progress is None or progress.finished == progress.batch:
        return {}
    found: dict[str, Ranges] = {}
    known = [name for name, one in source_kinds(pipeline).items() if one.subscription is not None]
    for source, ends in progress.offsets.items():
        if source not in pipeline.sources and len(progress.offsets) == len(known) == 1:
            source = known[0]  # a query that does not name its only source
        if source not in known:
            continue
        starts: Limits = progress.committed.get(source) or next(iter(progress.committed.values()), {}) or {}
        ranges = _ranges(starts, ends or {})
        if ranges:
            found[source] = ranges
    return found


def _ranges(starts: Limits, ends: Limits) -> Ranges:
    """Return the ranges from the end of the previous batch; a partition that it did not have starts where the entry
    itself says.
    """
    begun = begun_in(ends) or {}
    found = []
    for place, end in from_checkpoint(ends).items():
        start = starts.get(place.topic, {}).get(str(place.partition), begun.get(place, end))
        if start < end:
            found.append(Range(place.topic, place.partition, start, end))
    return found


def isolate(
    batch: dict[str, Ranges],
    build: Callable[[dict[str, Ranges]], Frame],
    fails: Callable[[Frame], str | None],
) -> list[BadRecord]:
    """Records of a batch that fail individually. `build` weaves a frame over ranges, by source."""
    found: list[BadRecord] = []

    def attempt(source: str, ranges: Ranges) -> str | None:
        return fails(build(batch | {source: ranges}))

    def search(source: str, ranges: Ranges, known_to_fail: bool) -> bool:
        """Returns True if the ranges fail. If the first half does not, the second one must."""
        is_single = sum(one.end - one.start for one in ranges) == 1
        if is_single or not known_to_fail:
            reason = attempt(source, ranges)
            if reason is None:
                return False
            if is_single:
                _take(found, source, ranges[0], reason)
                return True
        first, rest = halves(ranges)
        first_fails = search(source, first, known_to_fail=False)
        search(source, rest, known_to_fail=not first_fails)
        return True

    for source, ranges in batch.items():
        search(source, ranges, known_to_fail=False)
        if found:
            break
    return found


def _take(found: list[BadRecord], source: str, place: Range, reason: str) -> None:
    found.append(BadRecord(source, place.topic, place.partition, place.start, reason))
    if len(found) > MAX_RECORDS:
        raise TooMany(f"more than {MAX_RECORDS} records of a batch fail; the last one: {reason}")


def halves(ranges: Ranges) -> tuple[Ranges, Ranges]:
    """The first half of all offsets, and the rest; neither is empty if there are two."""
    wanted = sum(one.end - one.start for one in ranges) // 2
    first: Ranges = []
    rest: Ranges = []
    for one in ranges:
        size = one.end - one.start
        taken = min(size, wanted)
        if taken:
            first.append(Range(one.topic, one.partition, one.start, one.start + taken))
        if taken < size:
            rest.append(Range(one.topic, one.partition, one.start + taken, one.end))
        wanted -= taken
    return first, rest


def limits(ranges: Ranges, side: str) -> Limits:
    """`side` is start or end; as checkpoints keep offsets."""
    found: dict[str, dict[str, Any]] = {}
    for one in ranges:
        found.setdefault(one.topic, {})[str(one.partition)] = getattr(one, side)
    return found
