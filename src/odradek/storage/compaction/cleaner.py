"""Compacting a log in a separate process.

`worker.py` does the work. The broker gives it a job and puts each new segment in place as it is finished, oldest first,
so that the whole log need not be on disk twice. If anything goes wrong (the process dies, the disk is full, the log was
cut meanwhile), the job has failed, the log is as good as before, and the next round starts from the same checkpoint.
Only a log that cannot be read is given up, with the reason, until an operator repairs it and restarts the broker, or
`forget` is called.

The process is started with the first job and stays for the next one; `stop` it when there is none.
"""

import json
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from odradek.errors import KafkaError
from odradek.model import TopicPartition
from odradek.storage.compaction.choice import CleaningTarget
from odradek.storage.compaction.job import (
    DEFAULT_MAP_BYTES,
    CleanedGroup,
    CompactionJob,
    CompactionStats,
    Damage,
    LastBatches,
    SourceSegment,
    job_to_json,
)
from odradek.storage.disk.files import Files
from odradek.storage.disk.shortage import CannotOpen
from odradek.storage.log.log import Log
from odradek.storage.segments.segment import CLEANED_SUFFIX, Segment

MAX_LINE_BYTES = 16 << 20


class CleaningFailed(Exception):
    """This round was not completed. Later rounds may succeed, unless the log is given up."""


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
            round_.remove_leftovers()
            return await self._run(job_for(log, sources, target, now_ms, self.map_bytes), round_)
        except BaseException:
            await self.stop()
            with suppress(
                OSError
            ):  # the partition was deleted, or there is no descriptor: the next round tries again
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
                round_.note_damage(message)
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
        """End the process, whatever it is doing: it has nothing that could be lost."""
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
            producer_id: LastBatches(tuple(batch.last_offset for batch in producer.batches), producer.epoch)
            for producer_id, producer in log.producers.by_id.items()
        },
        map_bytes=map_bytes,
    )


class Round:
    """Puts the new segments of a round into its log, if the log still has their sources."""

    def __init__(self, files: Files, log: Log, sources: Sequence[Segment], now_ms: int) -> None:
        self._files = files
        self._log = log
        # The segments still to be replaced, and their sizes when the job was created.
        self._sources = {segment.base_offset: (segment, segment.size) for segment in sources}
        self._now_ms = now_ms

    def check_unchanged(self) -> None:
        """The broker aborts rounds before it cuts a log; but retention may remove segments."""
        inactive = self._log.segments[:-1]
        for segment, size in self._sources.values():
            if segment not in inactive or segment.size != size:
                raise LogChanged(f"{self._log.topic_partition} has changed since its compaction began")

    def note_damage(self, message: dict[str, Any]) -> None:
        """The log reports what compaction found, like what any other reader finds."""
        if message.get("damage"):
            damage = Damage(*message["damage"])
            for segment in self._log.segments:
                if segment.log.path == damage.path:
                    segment.damaged_at(damage.position, damage.offset, damage.reason)

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
        """Files that a worker wrote and that were not put in place; no worker may be at work. While there are any, a
        crash would undo the swap of every later segment, and its sources may be gone by then (`swap.tidy`)."""
        for entry in self._files.list(self._log.directory):
            if entry.name.endswith(CLEANED_SUFFIX):
                self._files.remove(f"{self._log.directory}/{entry.name}")
