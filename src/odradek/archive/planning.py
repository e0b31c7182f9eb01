"""Which ranges to archive next, and which files to merge. Pure: nothing here looks at a topic, a table or a clock."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from uuid import UUID

from odradek.archive.failures import Final, OtherTopic, RecordsLost
from odradek.archive.layout import ArchivedFile, Range, Snapshot

MERGED_AT_ONCE = 10  # neighbours
GROWTH = 4  # how many times as large as the largest of them the merged file has to be, at least
LARGE_BYTES = 128 * 1024 * 1024  # a file that large is never merged again
ADVICE_LOST = (
    "To go on without them, add --skip-lost; to lose none another time, raise the topic's retention.ms, or archive it "
    "more often"
)


@dataclass(frozen=True, slots=True)
class Log:
    """A partition's offsets now. Up to `stable` (the last stable offset) it is decided which records there are."""

    start: int
    stable: int
    end: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster shows it now."""

    name: str
    topic_id: UUID
    logs: Mapping[int, Log]


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets that were deleted before they were archived."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Plan:
    """`ranges` may be cut short by whoever reads them. `begun`: where partitions begin that are new to the archive."""

    ranges: tuple[Range, ...]
    begun: Mapping[int, int]
    losses: tuple[Loss, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.ranges and not self.begun


def plan_round(topic: Topic, snapshot: Snapshot, *, skip_lost: bool = False) -> Plan:
    """Plan what is in the topic and not in the archive. Raises `Final` where no exact archive could come of it."""
    check_same_topic(topic, snapshot)
    gone = sorted(snapshot.ends.keys() - topic.logs.keys())
    if gone:
        raise Final(
            f"topic {topic.name} has {len(topic.logs)} partitions, and its archive has partition {gone[-1]}: "
            "the archive may be of another cluster; name another directory with --to"
        )
    losses = [
        Loss(number, snapshot.ends[number], log.start)
        for number, log in sorted(topic.logs.items())
        if number in snapshot.ends and log.start > snapshot.ends[number]
    ]
    if losses and not skip_lost:
        raise RecordsLost(_lost(topic.name, losses[0]))
    begun = {number: log.start for number, log in topic.logs.items() if number not in snapshot.ends}
    starts = {**snapshot.ends, **begun, **{loss.partition: loss.end for loss in losses}}
    ranges = [
        _next_range(topic.name, number, starts[number], topic.logs[number]) for number in sorted(starts)
    ]
    return Plan(tuple(one for one in ranges if one.end > one.start), begun, tuple(losses))


def check_same_topic(topic: Topic, snapshot: Snapshot) -> None:
    if topic.topic_id != snapshot.topic_id:
        raise OtherTopic(
            f"topic {topic.name} was deleted and created again since it was archived, or is of another cluster: the "
            f"archive is of topic id {snapshot.topic_id}, the topic has {topic.topic_id} now. Move the old table "
            f"away (it stays readable), or archive to another place with --to"
        )


def check_tail(topic: Topic, snapshot: Snapshot) -> None:
    """Check that the topic goes on where the archive ends: raises if records are missing in between."""
    check_same_topic(topic, snapshot)
    for number, log in sorted(topic.logs.items()):
        end = snapshot.ends.get(number, log.start)
        if log.start > end:
            raise RecordsLost(
                f"offsets {end} to {log.start - 1} of {topic.name}-{number} are neither in the archive nor in the "
                "topic any more. Read what is archived, or the topic, alone"
            )
    for number, end in sorted(snapshot.ends.items()):
        if number not in topic.logs or topic.logs[number].end < end:
            raise RecordsLost(
                f"{topic.name}-{number} ends before offset {end}, up to which it is archived: the topic has lost "
                "records, and gives their offsets to others. Read what is archived, or the topic, alone"
            )


def cut(topic: str, partition: int, end: int, archived: int) -> Final:
    """The error of a log that ended, or ends, before the archive does."""
    return Final(
        f"{topic}-{partition} was archived up to offset {archived}, and its log has lost what was at offset {end} and "
        "after it since (an unclean leader election?): it gives those offsets to other records. Move the table away, "
        "and archive to another place with --to"
    )


def _next_range(topic: str, partition: int, start: int, log: Log) -> Range:
    if log.end < start:
        raise cut(topic, partition, log.end, start)
    return Range(partition, start, max(start, log.stable))


def _lost(topic: str, loss: Loss) -> str:
    return (
        f"offsets {loss.start} to {loss.end - 1} of {topic}-{loss.partition} were deleted from the topic before they "
        f"were archived. {ADVICE_LOST}"
    )


def plan_merges(files: Iterable[ArchivedFile]) -> list[Sequence[ArchivedFile]]:
    """Runs of neighbours to merge, none of which is large beside the others: so a row is rewritten a few times."""
    merges: list[Sequence[ArchivedFile]] = []
    ordered = sorted(files, key=lambda one: (one.partition, one.start))
    for (_, is_large), group in groupby(ordered, key=lambda one: (one.partition, one.size >= LARGE_BYTES)):
        if not is_large:
            merges += _runs(list(group))
    return merges


def _runs(neighbours: list[ArchivedFile]) -> Iterator[Sequence[ArchivedFile]]:
    at = 0
    while at + MERGED_AT_ONCE <= len(neighbours):
        run = neighbours[at : at + MERGED_AT_ONCE]
        is_worth_it = sum(one.size for one in run) >= GROWTH * max(one.size for one in run)
        if is_worth_it:
            yield run
        at += MERGED_AT_ONCE if is_worth_it else 1


def merged_range(files: Sequence[ArchivedFile]) -> Range:
    return Range(files[0].partition, files[0].start, max(one.end for one in files))


def retention_warning(topic: str, lag_ms: int, retention_ms: int | None) -> str | None:
    """A sentence where the topic may delete records before they are archived; None where there is time."""
    if retention_ms is None or retention_ms < 0 or lag_ms * 2 < retention_ms:
        return None
    return (
        f"topic {topic} deletes records after {_duration(retention_ms)}, and its oldest record that was not archived "
        f"was {_duration(lag_ms)} old: raise its retention.ms, or archive it more often, or records will be lost"
    )


def _duration(milliseconds: int) -> str:
    seconds = milliseconds / 1000
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"
