"""Which records a query failed on, found by trial.

A record that decodes well may still make a query fail: a cast, a division, a function of the user's, a row that
the sink's topic refuses. The failed batch is known from the checkpoint, by its offsets. It is run again,
as a batch that writes nothing; if that fails too, its halves are, and so on, until single records are left. They
become dead letters, and the query is told to skip them.

Only records of topics can be found this way. Errors that need several records together are not found, and end the run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.definition import Pipeline, TopicSource
from odradek.spark.offsets import begun_in, from_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_RECORDS = 100

Ranges = list["Range"]
Limits = dict[str, dict[str, int]]
Build = Callable[[dict[str, Limits], dict[str, Limits]], "DataFrame"]


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
    """By source: what the query's unfinished batch reads; empty if there is none."""
    progress = checkpoint.progress(kind, name)
    if progress is None or progress.finished == progress.batch:
        return {}
    found: dict[str, Ranges] = {}
    for source, ends in progress.offsets.items():
        if source not in pipeline.sources and len(progress.offsets) == 1:
            source = _only_topic_source(pipeline)  # a query that does not name its only source
        if source not in pipeline.sources or not isinstance(pipeline.sources[source].origin, TopicSource):
            continue
        starts: Limits = progress.committed.get(source) or next(iter(progress.committed.values()), {}) or {}
        ranges = _ranges(starts, ends or {})
        if ranges:
            found[source] = ranges
    return found


def _ranges(starts: Limits, ends: Limits) -> Ranges:
    """From the end of the previous batch; a partition that it did not have starts where the entry itself says."""
    begun = begun_in(ends) or {}
    found = []
    for place, end in from_checkpoint(ends).items():
        start = starts.get(place.topic, {}).get(str(place.partition), begun.get(place, end))
        if start < end:
            found.append(Range(place.topic, place.partition, start, end))
    return found


def _only_topic_source(pipeline: Pipeline) -> str:
    names = [name for name, one in pipeline.sources.items() if isinstance(one.origin, TopicSource)]
    return names[0] if len(names) == 1 else ""


def isolate(
    batch: dict[str, Ranges], build: Build, fails: Callable[["DataFrame"], str | None]
) -> list[BadRecord]:
    """Records of a batch that fail individually. `build` weaves a frame over offsets, by source."""

    def attempt(source: str, ranges: Ranges) -> str | None:
        chosen = batch | {source: ranges}
        starting = {name: _limits(some, "start") for name, some in chosen.items()}
        ending = {name: _limits(some, "end") for name, some in chosen.items()}
        return fails(build(starting, ending))

    found: list[BadRecord] = []

    def search(source: str, ranges: Ranges) -> None:
        reason = attempt(source, ranges)
        if reason is None:
            return
        if sum(one.end - one.start for one in ranges) == 1:
            (one,) = ranges
            found.append(BadRecord(source, one.topic, one.partition, one.start, reason))
            if len(found) > MAX_RECORDS:
                raise TooMany(f"more than {MAX_RECORDS} records of a batch fail; the last one: {reason}")
            return
        for half in halves(ranges):
            search(source, half)

    for source, ranges in batch.items():
        search(source, ranges)
        if found:
            break
    return found


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


def _limits(ranges: Ranges, side: str) -> Limits:
    found: dict[str, dict[str, Any]] = {}
    for one in ranges:
        found.setdefault(one.topic, {})[str(one.partition)] = getattr(one, side)
    return found
