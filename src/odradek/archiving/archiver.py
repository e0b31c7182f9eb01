"""All topics of an archiving process: round after round, until everything is archived or for ever.

A topic that cannot be archived does not keep the others from it. An outage of the cluster or the storage is waited out
by a process that goes on.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from odradek.archive.failures import ArchiveError, Final, MissingArchive
from odradek.archive.location import Location
from odradek.archive.planning import retention_warning
from odradek.archive.rows import merge
from odradek.archive.tables import Table
from odradek.archiving.metrics import Metrics
from odradek.archiving.rounds import Round, TopicArchiver
from odradek.archiving.topics import ClusterTopic, patient_cluster
from odradek.client.cluster import MissingTopic
from odradek.client.connection import ConnectionLost
from odradek.client.deadline import TimedOut
from odradek.client.settings import ClientSettings
from odradek.errors import KafkaError
from odradek.spark.pattern import compile_java

VACUUM_EVERY_S = 6 * 3600.0
PASSING = (ConnectionLost, TimedOut)

log = logging.getLogger("odradek.archiving")


@dataclass(frozen=True)
class Order:
    """The orders of a process: what it archives, and where to. `retention_ms` says after which time a topic deletes
    records; None: never.
    """

    settings: ClientSettings
    archive: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict)
    skip_lost: bool = False
    retention_ms: Callable[[str], int | None] = lambda topic: None


class Archiver:
    """`report` takes what each round has done, `warn` what a user should know."""

    def __init__(
        self,
        order: Order,
        report: Callable[[Round], None],
        warn: Callable[[str], None],
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._order, self._report, self._warn, self._clock = order, report, warn, clock
        self.metrics = metrics or Metrics()
        self._archivers: dict[str, tuple[TopicArchiver, Table]] = {}
        self._vacuumed_s: dict[str, float] = {}
        self._warned: set[str] = set()
        self._ended: set[str] = set()
        self._stopping = threading.Event()
        self._was_reached = False

    def stop(self) -> None:
        """Let `run` end soon: what is being read is committed, and nothing new is begun."""
        self._stopping.set()

    def pause(self, seconds: float) -> bool:
        """A `wait` for `run`: False once `stop` was called."""
        return not self._stopping.wait(seconds)

    def topics(self) -> list[str]:
        """Return the topics that are named, and those that match the pattern now."""
        order, found = self._order, set(self._order.topics)
        if order.pattern is not None:
            pattern = compile_java(order.pattern)
            with patient_cluster(order.settings, self._stopping, was_reached=self._was_reached) as cluster:
                found |= {name for name in cluster.topic_names() if pattern.fullmatch(name)}
                self._was_reached = True
        return sorted(found)

    def _some_topics(self) -> list[str]:
        topics = self.topics()
        if not topics:
            raise Final(f"no topic matches {self._order.pattern}; 'odradek topic list' shows those there are")
        return topics

    def run_once(self) -> int:
        """Archive what there is now; returns the number of rows. A topic that fails is reported after the others."""
        rows, problems = 0, list[Exception]()
        for topic in self._some_topics():
            try:
                rows += self._catch_up(topic)
            except (ArchiveError, KafkaError, MissingTopic) as error:
                problems.append(error)
        if problems:
            raise Final("; ".join(map(str, problems))) if len(problems) > 1 else problems[0]
        return rows

    def run(self, wait: Callable[[], bool]) -> None:
        """Go on until `wait`, which is called after each pass over all topics, returns False."""
        topics = self._some_topics()
        for topic in topics:
            self._try(topic, topics, is_first=True)
        while wait():
            try:
                topics = self.topics()
            except PASSING as error:
                if self._stopping.is_set():
                    return
                log.warning("the cluster does not respond: %s. Trying again", error)
                continue
            for topic in topics:
                if topic not in self._ended:
                    self._try(topic, topics)

    def _try(self, topic: str, topics: Sequence[str], *, is_first: bool = False) -> None:
        """Begin a topic. A passing failure is tried again, except at first; any other ends the topic, and the process
        with the last of the topics that there are.
        """
        if self._stopping.is_set():
            return
        try:
            self._catch_up(topic)
        except (Final, KafkaError, MissingTopic) as error:
            self.metrics.failed(topic)
            self._ended.add(topic)
            if self._ended.issuperset(topics):
                raise
            self._warn(f"{topic} is not archived any more: {error}")
        except (*PASSING, ArchiveError, OSError) as error:
            if self._stopping.is_set():
                return  # what was not committed is archived the next time
            if is_first:
                raise
            self.metrics.failed(topic)
            self._warn(f"{topic} was not archived this time, and is tried again: {error}")

    def _catch_up(self, topic: str) -> int:
        """Rounds until nothing is left of what was there at the first."""
        archiver, table = self._archiver(topic)
        rows = 0
        for done in _rounds(archiver):
            rows += done.rows
            self.metrics.take(done)
            self._report(done)
            self._warn_of(done)
            if self._stopping.is_set():
                return rows
        if archiver.merge_files():
            self._maybe_vacuum(topic, table)
        return rows

    def _archiver(self, topic: str) -> tuple[TopicArchiver, Table]:
        if topic not in self._archivers:
            order = self._order
            location = Location.of(order.archive, topic, order.storage)
            source = ClusterTopic(order.settings, topic, location, self._stopping)
            try:
                table = Table.open(location)
            except MissingArchive:
                table = Table.create(location, topic, source.topic_id())
            merging = partial(merge, location)
            self._archivers[topic] = TopicArchiver(source, table, merging, skip_lost=order.skip_lost), table
        return self._archivers[topic]

    def _maybe_vacuum(self, topic: str, table: Table) -> None:
        now_s = self._clock()
        if now_s - self._vacuumed_s.get(topic, float("-inf")) < VACUUM_EVERY_S:
            return
        self._vacuumed_s[topic] = now_s
        table.vacuum()

    def _warn_of(self, done: Round) -> None:
        for loss in done.losses:
            self._warn(
                f"offsets {loss.start} to {loss.end - 1} of {done.topic}-{loss.partition} are not in the archive: they "
                "were deleted from the topic before"
            )
        if done.oldest_ms is None or done.topic in self._warned:
            return
        lag_ms = int(self._clock() * 1000) - done.oldest_ms
        warning = retention_warning(done.topic, lag_ms, self._order.retention_ms(done.topic))
        if warning is not None:
            self._warned.add(done.topic)
            self._warn(warning)


def _rounds(archiver: TopicArchiver) -> Iterator[Round]:
    """Until what was there at the beginning is archived: records that come meanwhile are for the next time."""
    first = archiver.round()
    yield first
    goals = {number: first.ends[number] + lag for number, lag in first.lags.items()}
    done = first
    while any(done.ends[number] < goal for number, goal in goals.items()):
        before, done = done, archiver.round()
        if dict(before.ends) == dict(done.ends):
            raise ArchiveError(
                f"{done.topic} has offsets that cannot be read: its log has changed meanwhile. Run it again"
            )
        yield done
