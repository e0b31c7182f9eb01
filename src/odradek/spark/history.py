"""The history of topics in an archive: which part of a range is read from there.

An offset means the same record in the archive and in the topic. So a query's offsets are those of topics alone, as
without an archive, and each planning decides anew: what the archive has by then is read from its files, the rest from
the topic. A batch that is planned again after a crash may read from other files, because the archive grows and its
files are merged, but it reads the same records.

A task names the files of one version. A vacuum leaves replaced files for a week.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from odradek.archive.failures import MissingArchive
from odradek.archive.layout import Range, Snapshot
from odradek.archive.location import Location
from odradek.archive.planning import Topic, check_same_topic
from odradek.client.cluster import Cluster
from odradek.model import TopicPartition
from odradek.spark.offsets import OffsetRange, Offsets

if TYPE_CHECKING:
    from odradek.spark.options import SourceOptions


@dataclass
class ArchivePartition(InputPartition):
    """The work of one task: a range of offsets of one file."""

    location: Location
    topic: str
    path: str
    range: Range


class History:
    """The contents of an archive, as one planning sees it: each table is opened once, and only if it is asked for."""

    def __init__(self, options: "SourceOptions", cluster: Cluster) -> None:
        self._options, self._cluster = options, cluster
        self._snapshots: dict[str, Snapshot | None] = {}

    def begun_before(self, earliest: Offsets) -> Offsets:
        """Return where partitions begin whose records are in the archive, and not in the topic any more."""
        begun = {key: (offset, self.begin_of(key)) for key, offset in earliest.items()}
        return {key: min(offset, begin) for key, (offset, begin) in begun.items() if begin is not None}

    def begin_of(self, key: TopicPartition) -> int | None:
        """The first offset that a partition's archive covers; None without one."""
        snapshot = self._snapshot(key.topic)
        if snapshot is None or key.partition not in snapshot.ends:
            return None
        return snapshot.start_of(key.partition)

    def split(self, ranges: list[OffsetRange]) -> tuple[list[ArchivePartition], list[OffsetRange]]:
        """Divide the ranges into what to read from the archive, a task for each file, and what to read from topics."""
        tasks: list[ArchivePartition] = []
        rest: list[OffsetRange] = []
        for one in ranges:
            snapshot = self._snapshot(one.partition.topic) if one.size > 0 else None
            archived = 0 if snapshot is None else snapshot.ends.get(one.partition.partition, 0)
            border = max(one.start, min(one.end, archived))
            if snapshot is not None and border > one.start:
                tasks += self._tasks(one.partition, one.start, border, snapshot)
            if one.end > border:
                rest.append(OffsetRange(one.partition, border, one.end))
        return tasks, rest

    def _tasks(self, key: TopicPartition, start: int, end: int, snapshot: Snapshot) -> list[ArchivePartition]:
        location = self._location(key.topic)
        return [
            ArchivePartition(
                location,
                key.topic,
                file.path,
                Range(key.partition, max(start, file.start), min(end, file.end)),
            )
            for file in snapshot.files_of(key.partition, start, end)
        ]

    def _location(self, topic: str) -> Location:
        assert self._options.archive is not None
        return Location.of(self._options.archive, topic, dict(self._options.archive_storage))

    def _snapshot(self, topic: str) -> Snapshot | None:
        """None without an archive; a topic that matches a pattern need not have one."""
        if self._options.archive is None:
            return None
        if topic not in self._snapshots:
            self._snapshots[topic] = self._opened(topic)
        return self._snapshots[topic]

    def _opened(self, topic: str) -> Snapshot | None:
        from odradek.archive.tables import Table

        try:
            snapshot = Table.open(self._location(topic)).pinned()
        except MissingArchive:
            if self._options.subscription.pattern is not None:
                return None
            raise
        check_same_topic(Topic(topic, self._cluster.topic_ids([topic])[topic], {}), snapshot)
        return snapshot
