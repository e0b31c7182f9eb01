"""Which log to compact next, and having it done in a process of its own.

The choice is Kafka's: of the logs whose dirty part is large enough (`min.cleanable.dirty.ratio`), or has
waited too long (`max.compaction.lag.ms`), the one with the largest share of dirty bytes. It is a pure
function of facts about the logs.

The work is done by `cleaner_worker.py`. The broker gives it a job and puts each new segment in place as it
comes, oldest first, so that the whole log need not be on disk twice. Whatever goes wrong (the process dies,
the disk is full, the log was cut meanwhile) the job has failed, the log is as good as before, and the next
round starts from the same checkpoint. Only a log that cannot be read is given up, with the reason, until
somebody repairs it and restarts the broker, or calls `forget`.

The process is started with the first job and stays for the next one; `stop` it when there is none.
"""

import json
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from odradek.errors import KafkaError
from odradek.model import TopicPartition
from odradek.storage.compaction.exchange import job_to_json
from odradek.storage.compaction.job import (
    DEFAULT_MAP_BYTES,
    CleanedGroup,
    CompactionJob,
    CompactionStats,
    LastRecord,
    SourceSegment,
)
from odradek.storage.config import NEVER, LogConfig
from odradek.storage.disk.checkpoints import CLEANER_OFFSETS, MalformedCheckpoint, read_offsets, write_offsets
from odradek.storage.disk.files import Files
from odradek.storage.disk.shortage import CannotOpen
from odradek.storage.log.log import Log
from odradek.storage.segments.segment import CLEANED_SUFFIX, Segment

MAX_LINE_BYTES = 16 << 20


# The choice


class SegmentFacts(NamedTuple):
    """Timestamps are looked up only where a lag is configured, and -1 otherwise."""

    base_offset: int
    size: int
    first_timestamp: int
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class LogFacts:
    """`segments` are all but the active one, which begins at `active_base_offset`."""

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
    """The checkpoint, unless the log does not reach there: then everything is dirty."""
    clean_offset = facts.clean_offset
    if clean_offset is None or not facts.log_start_offset <= clean_offset <= facts.end_offset:
        return facts.log_start_offset
    return clean_offset


def segments_from(segments: Sequence[SegmentFacts], offset: int) -> Sequence[SegmentFacts]:
    """The segments from the one that holds this offset on."""
    before = sum(1 for segment in segments if segment.base_offset <= offset)
    return segments[max(before - 1, 0) :]


def uncleanable_limit(facts: LogFacts, dirty: Sequence[SegmentFacts], now_ms: int) -> int:
    """Not cleaned: the active segment, what is not decided yet, and what is younger than the minimal lag."""
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


class CleanOffsets:
    """The checkpoint of how far each log is clean. Where it is lost or unreadable, all is dirty again."""

    def __init__(self, files: Files, data_directory: str) -> None:
        self._files = files
        self._path = f"{data_directory}/{CLEANER_OFFSETS}"
        try:
            self.offsets = read_offsets(files, self._path)
        except MalformedCheckpoint:
            self.offsets = {}

    def note(self, partition: TopicPartition, offset: int) -> None:
        self.offsets[partition] = offset
        write_offsets(self._files, self._path, self.offsets)

    def forget(self, partition: TopicPartition) -> None:
        """Writes nothing, so that a topic can be deleted whatever the disk is like. The next note removes the entry
        from the file, and so does the store before it creates a log of this name."""
        self.offsets.pop(partition, None)


# The work


class CleaningFailed(Exception):
    """This round came to less than all. Later rounds may succeed, unless the log is given up."""


class LogChanged(CleaningFailed):
    """The log no longer has the segments that were compacted: it was cut, or retention removed them."""


class Worker(Protocol):
    """The process that compacts, as its broker sees it: it is sent jobs and sends messages, each of them a line."""

    @property
    def has_ended(self) -> bool: ...
    async def send(self, line: bytes) -> None:
        """Raises ConnectionError where it has ended."""

    async def receive(self) -> bytes:
        """The next line; without its end if the worker has ended."""

    def kill(self) -> None: ...
    async def wait(self) -> int:
        """Until it has ended: its exit code."""


class Cleaner:
    """One worker process, one job at a time. `uncleanable` says which partitions were given up, and why."""

    def __init__(
        self,
        files: Files,
        start_worker: Callable[[], Awaitable[Worker]],
        *,
        bytes_per_second: float = math.inf,
        map_bytes: int = DEFAULT_MAP_BYTES,
    ) -> None:
        self._files = files
        self.bytes_per_second = bytes_per_second
        self.map_bytes = map_bytes
        self.uncleanable: dict[TopicPartition, str] = {}
        self._start_worker = start_worker
        self._worker: Worker | None = None
        self._current: TopicPartition | None = None

    async def clean(self, log: Log, target: CleaningTarget, now_ms: int) -> CompactionStats:
        """One round. The caller writes `end_offset` of the result to the cleaner's checkpoint."""
        assert self._current is None, "one job at a time"
        self._current = log.topic_partition
        sources = [
            segment for segment in log.segments if segment.base_offset < target.first_uncleanable_offset
        ]
        round_ = Round(self._files, log, sources, now_ms)
        try:
            return await self._run(job_for(log, sources, target, now_ms, self.map_bytes), round_)
        except BaseException:
            await self.stop()
            round_.remove_leftovers()
            raise
        finally:
            self._current = None

    async def _run(self, job: CompactionJob, round_: "Round") -> CompactionStats:
        worker = await self._started()
        line = json.dumps(job_to_json(job, self.bytes_per_second)) + "\n"
        try:
            await worker.send(line.encode())
        except ConnectionError as error:
            raise CleaningFailed("The cleaner's process died") from error
        while True:
            message = await self._receive(worker)
            if "group" in message:
                sources, base_offset, size = message["group"]
                round_.put_in_place(CleanedGroup(tuple(sources), base_offset, size))
            elif "done" in message:
                return CompactionStats(**message["done"])
            else:
                round_.check_unchanged()
                raise self._failure(message)

    @staticmethod
    async def _receive(worker: Worker) -> dict[str, Any]:
        line = await worker.receive()
        if not line.endswith(b"\n"):
            raise CleaningFailed(f"The cleaner's process died with exit code {await worker.wait()}")
        message: dict[str, Any] = json.loads(line)
        return message

    def _failure(self, message: dict[str, Any]) -> CleaningFailed:
        """A log that cannot be read, and did not change under the reader, cannot be read tomorrow either."""
        assert self._current is not None
        if message["corrupt"]:
            self.uncleanable[self._current] = message["failed"]
        return CleaningFailed(message["failed"])

    async def _started(self) -> Worker:
        if self._worker is None or self._worker.has_ended:
            self._worker = await self._start_worker()
        return self._worker

    def abort(self, partition: TopicPartition) -> None:
        """Before a log is cut or deleted: if it is being compacted, its round fails."""
        if partition == self._current and self._worker is not None:
            self._worker.kill()

    def forget(self, partition: TopicPartition) -> None:
        """The partition is gone, or was repaired."""
        self.uncleanable.pop(partition, None)

    async def stop(self) -> None:
        """End the process, whatever it is doing: it holds nothing that would be lost."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            await worker.wait()


def job_for(
    log: Log, sources: Sequence[Segment], target: CleaningTarget, now_ms: int, map_bytes: int
) -> CompactionJob:
    return CompactionJob(
        directory=log.directory,
        segments=[SourceSegment(segment.base_offset, segment.size) for segment in sources],
        first_dirty_offset=target.first_dirty_offset,
        first_uncleanable_offset=target.first_uncleanable_offset,
        now_ms=now_ms,
        config=log.config,
        active_producers={
            producer_id: LastRecord(
                producer.batches[-1].last_offset if producer.batches else None, producer.epoch
            )
            for producer_id, producer in log.producers.by_id.items()
        },
        map_bytes=map_bytes,
    )


class Round:
    """Puts what a round makes into its log, if the log still has what it was made from."""

    def __init__(self, files: Files, log: Log, sources: Sequence[Segment], now_ms: int) -> None:
        self._files = files
        self._log = log
        # What is still to be replaced, and how large it was when the job was made.
        self._sources = {segment.base_offset: (segment, segment.size) for segment in sources}
        self._now_ms = now_ms

    def check_unchanged(self) -> None:
        """The broker aborts rounds before it cuts a log; retention may still take segments away."""
        inactive = self._log.segments[:-1]
        for segment, size in self._sources.values():
            if segment not in inactive or segment.size != size:
                raise LogChanged(f"{self._log.topic_partition} has changed since its compaction began")

    def put_in_place(self, group: CleanedGroup) -> None:
        self.check_unchanged()
        log = self._log
        sizes = {entry.name: entry.size for entry in self._files.list(log.directory)}
        cleaned = Segment.open(
            self._files, log.directory, group.base_offset, sizes, log.config, self._now_ms, CLEANED_SUFFIX
        )
        if cleaned.size != group.size:
            raise CleaningFailed(f"{cleaned.log.path} has {cleaned.size} bytes, not {group.size}")
        old = [self._sources.pop(offset)[0] for offset in group.source_offsets]
        try:
            log.replace_segments(old, [cleaned], self._now_ms)
        except KafkaError as error:
            if isinstance(error.__cause__, CannotOpen):
                raise error.__cause__ from error
            raise CleaningFailed(str(error)) from error
        finally:
            cleaned.close()

    def remove_leftovers(self) -> None:
        """What the worker made and nobody put in place. The worker must have ended."""
        try:
            for entry in self._files.list(self._log.directory):
                if entry.name.endswith(CLEANED_SUFFIX):
                    self._files.remove(f"{self._log.directory}/{entry.name}")
        except OSError:
            pass  # the partition was deleted; otherwise opening the log removes them
