"""One round of one topic: what the topic has and its archive does not becomes one commit.

    describe the topic ─► read the table ─► plan ─► write a file for each range ─► commit ─► merge

A crash anywhere leaves files that no version of the table names, or a commit that is whole. The next round begins by
reading the table, so it never needs to know which. Topic and table are interfaces: tests/archive simulates both.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from odradek.archive.failures import AnotherArchiver
from odradek.archive.layout import ArchivedFile, NewFile, Range, Snapshot
from odradek.archive.planning import (
    Loss,
    Plan,
    Topic,
    check_same_topic,
    merged_range,
    plan_merges,
    plan_round,
)
from odradek.client.fetching import NO_EPOCH


class Source(Protocol):
    """The topic."""

    def describe(self) -> Topic: ...

    def topic_id(self) -> UUID: ...

    def write(self, ranges: Sequence[Range], epochs: Mapping[int, int]) -> "list[Part]":
        """Write what the ranges have to files that nobody names yet. `epochs`: the leader epoch of what is archived
        before a partition's range. Raises `Final` if the log is not the one that it was."""


class Target(Protocol):
    """The table."""

    def snapshot(self) -> Snapshot: ...

    def commit(
        self, topic_id: UUID, files: Sequence[NewFile], ends: Mapping[int, int], epochs: Mapping[int, int]
    ) -> None: ...

    def replace(self, replaced: Sequence[ArchivedFile], file: NewFile | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Part:
    """The result of a range: up to where it was read, its file if it has rows, and the epoch of its last batch."""

    range: Range
    file: NewFile | None
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Round:
    """The result of a round. `lags`: the offsets of each partition that are still to be archived."""

    topic: str
    rows: int = 0
    size: int = 0
    ends: Mapping[int, int] = field(default_factory=dict)
    lags: Mapping[int, int] = field(default_factory=dict)
    oldest_ms: int | None = None  # of the rows that this round has archived
    losses: tuple[Loss, ...] = ()

    @property
    def lag(self) -> int:
        return sum(self.lags.values())


class TopicArchiver:
    """Archives one topic, round by round. `merge` writes one file with the rows of several."""

    def __init__(
        self,
        source: Source,
        target: Target,
        merge: Callable[[Sequence[ArchivedFile], Range], NewFile | None],
        *,
        skip_lost: bool = False,
    ) -> None:
        self._source, self._target, self._merge, self._skip_lost = source, target, merge, skip_lost
        self._known: Mapping[int, int] | None = None  # what we have left; only another archiver changes it

    def round(self) -> Round:
        known, self._known = self._known, None  # after a failure, what the table has is anybody's guess
        topic = self._source.describe()
        snapshot = self._target.snapshot()
        _check_alone(snapshot, known)
        plan = plan_round(topic, snapshot, skip_lost=self._skip_lost)
        skipped = {loss.partition for loss in plan.losses}
        before = {number: epoch for number, epoch in snapshot.epochs.items() if number not in skipped}
        parts = self._source.write(plan.ranges, before)
        files = [part.file for part in parts if part.file is not None]
        moved = dict(plan.begun) | {part.range.partition: part.range.end for part in parts}
        if moved:
            again = Topic(topic.name, self._source.topic_id(), {})
            check_same_topic(again, snapshot)  # it may have been created again while it was read
            epochs = {part.range.partition: part.epoch for part in parts if part.epoch != NO_EPOCH}
            self._target.commit(topic.topic_id, files, moved, epochs)
        self._known = dict(snapshot.ends) | moved
        return self._report(topic, plan, files, self._known)

    def _report(self, topic: Topic, plan: Plan, files: Sequence[NewFile], ends: Mapping[int, int]) -> Round:
        lags = {number: max(0, log.stable - ends[number]) for number, log in topic.logs.items()}
        return Round(
            topic.name,
            sum(one.rows for one in files),
            sum(one.size for one in files),
            ends,
            lags,
            min((one.min_timestamp_ms for one in files), default=None),
            plan.losses,
        )

    def merge_files(self) -> int:
        """Make one file of many small ones; returns how many were replaced. Readers do not notice."""
        count = 0
        for files in plan_merges(self._target.snapshot().files):
            merged = self._merge(files, merged_range(files))
            self._target.replace(files, merged)
            count += len(files)
        return count


def _check_alone(snapshot: Snapshot, known: Mapping[int, int] | None) -> None:
    if known is not None and dict(snapshot.ends) != dict(known):
        raise AnotherArchiver(
            f"another process archives {snapshot.topic} into the same table: it went on from where this one was. "
            "Nothing is lost or doubled; this one stops. Run only one for each topic"
        )
