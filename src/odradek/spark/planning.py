"""Turns the user's options into offsets: which partitions there are, where each starts and ends.

All of it runs next to the driver. Spark's connector decides the same things in the same way, so that the same
options read the same rows.
"""

import logging
import time
from collections.abc import Iterable

from odradek.client.cluster import EARLIEST, LATEST, NO_OFFSET, Cluster, MissingTopic
from odradek.model import TopicPartition
from odradek.spark.history import ArchivePartition, History
from odradek.spark.offsets import OffsetRange, Offsets
from odradek.spark.options import InvalidOption, Limit, SourceOptions, Subscription
from odradek.spark.pattern import compile_java

log = logging.getLogger("odradek.spark")


class DataLoss(Exception):
    """Rows that should have been read are gone; the message says which."""


LIKELY_CAUSE = "Records may have been deleted by retention, or the topic was deleted and created again."


def report_loss(options: SourceOptions, message: str, cause: str = LIKELY_CAUSE) -> None:
    """Fail, or continue with a warning, as the user chose."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{message}. {cause} To continue without them, set the option failOnDataLoss to false")
    log.warning("%s. Continuing without them, because failOnDataLoss is false", message)


class Planner:
    """Asks one cluster on behalf of one set of options."""

    def __init__(self, options: SourceOptions, cluster: Cluster) -> None:
        self.options, self.cluster = options, cluster
        self._read_committed = options.properties.fetch.read_committed
        self.history = History(options, cluster)

    def partitions(self, begun: Offsets | None = None) -> list[TopicPartition]:
        """Return the partitions of the subscription that exist now. `begun` is what a continued query has read."""
        subscription = self.options.subscription
        wanted = set(self._topics(subscription))
        while True:
            try:
                existing = self.cluster.partitions_of(wanted)
                break
            except MissingTopic as error:
                self._report_missing(error, subscription, begun)
                wanted.discard(error.topic)
        if not subscription.partitions:
            return existing
        for partition in set(subscription.partitions).difference(existing):
            log.warning("option 'assign': partition %s does not exist (yet)", partition)
        return [one for one in subscription.partitions if one in existing]

    def _topics(self, subscription: Subscription) -> Iterable[str]:
        if subscription.pattern is None:
            return subscription.topics or (one.topic for one in subscription.partitions)
        pattern = compile_java(subscription.pattern)
        return (name for name in self.cluster.topic_names() if pattern.fullmatch(name))

    def _report_missing(self, error: MissingTopic, subscription: Subscription, begun: Offsets | None) -> None:
        """A topic that never existed is a mistake in the options, one that was read is a loss."""
        read_to = {key.partition: offset for key, offset in (begun or {}).items() if key.topic == error.topic}
        if read_to:
            ends = ", ".join(f"{partition} to offset {read_to[partition]}" for partition in sorted(read_to))
            report_loss(
                self.options,
                f"topic {error.topic!r} no longer exists; this query has read its partitions {ends}",
                f"If it was deleted on purpose, remove it from the option '{subscription.option}', or start over "
                "with another checkpointLocation.",
            )
        elif subscription.pattern is None and (begun is None or self.options.fail_on_data_loss):
            raise InvalidOption(subscription.option, f"{error}; create it, or correct the option") from None

    def resolve(self, limit: Limit, *, is_start: bool) -> Offsets:
        """Returns the offsets of a limit for all existing partitions."""
        partitions = self.partitions()
        if limit.kind == Limit.EARLIEST:
            return self.earliest(partitions)
        if limit.kind == Limit.LATEST:
            return self.latest(partitions)
        side = "starting" if is_start else "ending"
        if limit.kind == Limit.TIMESTAMP:
            assert limit.timestamp_ms is not None
            return self._at(dict.fromkeys(partitions, limit.timestamp_ms), f"{side}Timestamp", is_start)
        wanted = dict(limit.offsets)
        name = f"{side}Offsets" if limit.kind == Limit.OFFSETS else f"{side}OffsetsByTimestamp"
        _check_all_given(name, wanted, partitions)
        if limit.kind == Limit.TIMESTAMPS:
            return self._at(wanted, name, is_start)
        named = {key: value for key, value in wanted.items() if value in (EARLIEST, LATEST)}
        return wanted | self._list(named)

    def _at(self, timestamps: Offsets, name: str, is_start: bool) -> Offsets:
        """The first offset at or after each time; the latest for those that end, or where the user says so."""
        offsets = self._list(timestamps)
        unmatched = [partition for partition, offset in offsets.items() if offset == NO_OFFSET]
        if unmatched and is_start and not self.options.latest_if_no_match:
            raise InvalidOption(
                name,
                f"{unmatched[0]} has no record at or after {timestamps[unmatched[0]]}; take an earlier time, "
                "or set startingOffsetsByTimestampStrategy to latest",
            )
        return offsets | self.latest(unmatched)

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._list(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition], known: Offsets | None = None) -> Offsets:
        """The ends of the partitions. If one is before what is already known, ask again."""
        wanted = dict.fromkeys(partitions, LATEST)
        for _ in range(self.options.fetch_offset_attempts - 1):
            offsets = self._ends(wanted, known or {})
            if all(offset >= (known or {}).get(key, 0) for key, offset in offsets.items()):
                return offsets
            time.sleep(self.options.fetch_offset_interval_ms / 1000)
        return self._ends(wanted, known or {})

    def _ends(self, wanted: Offsets, known: Offsets) -> Offsets:
        """A query that has read uncommitted records before may be ahead of the last stable offset: it waits there."""
        offsets = self._list(wanted)
        ahead = [key for key, offset in offsets.items() if offset < known.get(key, 0)]
        if not ahead or not self._read_committed:
            return offsets
        ends = self.cluster.list_offsets(dict.fromkeys(ahead, LATEST))
        return offsets | {key: known[key] for key in ahead if known[key] <= ends[key]}

    def _list(self, timestamps: Offsets) -> Offsets:
        if not timestamps:
            return {}
        offsets = self.cluster.list_offsets(timestamps, read_committed=self._read_committed)
        earliest = {key: offset for key, offset in offsets.items() if timestamps[key] == EARLIEST}
        return offsets | self.history.begun_before(earliest)

    def batch_ranges(self) -> list[OffsetRange]:
        """Return what a batch query reads."""
        start = self.resolve(self.options.start, is_start=True)
        end = self.resolve(self.options.end, is_start=False)
        latest = self.latest(start)
        ranges = []
        for partition in sorted(start.keys() & end.keys()):
            if start[partition] > end[partition]:
                raise InvalidOption("startingOffsets", beyond(partition, start[partition], end[partition]))
            if end[partition] > latest[partition]:
                report_loss(
                    self.options,
                    f"{partition} ends at offset {latest[partition]}, so the offsets up to {end[partition]} "
                    "are not there",
                )
            ranges.append(OffsetRange(partition, start[partition], min(end[partition], latest[partition])))
        return ranges

    def split(self, ranges: list[OffsetRange]) -> tuple[list[ArchivePartition], list[OffsetRange]]:
        """Divide the ranges into what to read from an archive, and what from topics."""
        for one in ranges:
            begin = self.history.begin_of(one.partition)
            if begin is not None and one.start < min(begin, one.end):
                lost = f"offsets {one.start} to {min(begin, one.end) - 1} of {one.partition} are gone"
                report_loss(self.options, f"{lost}: its archive begins at {begin}")
        return self.history.split(ranges)

    def begin_within(self, begun: Offsets, latest: Offsets) -> Offsets:
        """Return where a new query starts, if that is not beyond the ends, as an offset from the user may be."""
        for partition in sorted(begun.keys() & latest.keys()):
            if begun[partition] > latest[partition]:
                problem = beyond(partition, begun[partition], latest[partition])
                if self.options.fail_on_data_loss:
                    raise InvalidOption("startingOffsets", problem)
                log.warning("option 'startingOffsets': %s. Starting at its end", problem)
        return {key: min(offset, latest.get(key, offset)) for key, offset in begun.items()}

    def stream_ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """Return what a batch of a stream reads. Partitions that `start` does not have start at their earliest
        offset.
        """
        gone = sorted(start.keys() - end.keys())
        if gone:
            report_loss(self.options, f"partitions {', '.join(map(str, gone))} no longer exist")
        added = self.new_partitions(end.keys() - start.keys())
        ranges = []
        for partition in sorted(end):
            first, last = (start | added)[partition], end[partition]
            if last < first and partition in start:
                report_loss(self.options, f"the end of {partition} went back from offset {first} to {last}")
            ranges.append(OffsetRange(partition, first, last))
        return ranges

    def new_partitions(self, partitions: Iterable[TopicPartition]) -> Offsets:
        earliest = self.earliest(partitions)
        for partition, offset in earliest.items():
            if offset > 0:
                report_loss(self.options, f"new partition {partition} starts at offset {offset} instead of 0")
        return earliest


def beyond(partition: TopicPartition, start: int, end: int) -> str:
    return (
        f"{partition} cannot start at offset {start}, because it ends at {end}; give an offset up to {end}, "
        "or -1 for latest in a stream"
    )


def _check_all_given(name: str, given: Offsets, partitions: list[TopicPartition]) -> None:
    if given.keys() != set(partitions):
        raise InvalidOption(
            name,
            "it must name every partition (-1 means latest, -2 earliest): it names "
            f"{', '.join(map(str, sorted(given)))}, but there are {', '.join(map(str, partitions))}",
        )
