"""Writes snapshots of the metadata, and deletes the log below them.

A snapshot is due once the log has grown by a number of bytes since the last one, or after an interval in which
something changed. The log then begins a new segment, so that the snapshot ends where a segment ends. The image is
immutable, so it is written over many turns of the event loop, between other work; a thread syncs it. It counts once its
name is on disk. A failure before that leaves the log as it is.

As in Kafka, older snapshots and the log between them are kept until they are too old or too large. The log then starts
where the oldest remaining snapshot ends; only whole segments are deleted. The newest snapshot is never deleted.

A snapshot that cannot be written (on a full disk, or without descriptors) does no harm: the error is logged once, and
it is tried again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from odradek.errors import KafkaError
from odradek.host.interface import Host
from odradek.metadata.image import MetadataImage
from odradek.metadata.log import MetadataLog
from odradek.metadata.snapshot import id_of, write_snapshot
from odradek.storage.disk.files import pinned
from odradek.wire.codec import Steps

logger = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 60.0
LONGEST_RETRY_SECONDS = 3600.0


class Policy(NamedTuple):
    """Kafka's settings; each field names its own."""

    max_bytes: int  # metadata.log.max.record.bytes.between.snapshots
    max_interval_ms: int  # metadata.log.max.snapshot.interval.ms; 0: no limit
    retention_bytes: int  # metadata.max.retention.bytes; negative: no limit
    retention_ms: int  # metadata.max.retention.ms; negative: no limit


class Finish(Protocol):
    """Runs many steps, over as many turns of the event loop as they take."""

    def __call__(self, steps: Steps[int]) -> Awaitable[int]: ...


class Snapshotter:
    def __init__(self, log: MetadataLog, policy: Policy, host: Host, finish: Finish) -> None:
        self._log = log
        self._policy = policy
        self._host = host
        self._finish = finish
        self._written_at = host.monotonic()  # of the last snapshot, or of the start
        self._failures = 0  # since the last success
        self._next_attempt = 0.0

    async def maintain(self) -> None:
        """Do what is due; call this every few seconds. Raises only if the log has failed: the node must stop."""
        while self._log.deletions.run_next(self._host.now_ms()):
            await asyncio.sleep(0)
        if self._log.failed or self._host.monotonic() < self._next_attempt:
            return
        try:
            if self._is_due():
                image = self._begin()
                if id_of(image).end_offset > self._log.synced_offset:
                    return  # the image is committed by other voters, but not synced here yet
                await self._write(image)
            self._delete_old()
        except (OSError, KafkaError) as error:
            if self._log.failed:
                raise
            self._put_off(error)

    # When

    def _is_due(self) -> bool:
        last = self._log.snapshots.end_offset
        if self._log.image.offset + 1 <= last:
            return False
        if self._log.size_from(last) >= self._policy.max_bytes:
            return True
        passed_ms = (self._host.monotonic() - self._written_at) * 1000
        return 0 < self._policy.max_interval_ms <= passed_ms

    def _put_off(self, error: Exception) -> None:
        delay = min(FIRST_RETRY_SECONDS * 2**self._failures, LONGEST_RETRY_SECONDS)
        self._next_attempt = self._host.monotonic() + delay
        self._failures += 1
        if self._failures == 1:
            logger.error(
                "cannot write a metadata snapshot or delete what it replaces, trying again in %g s: %s. "
                "Nothing is lost: until it succeeds the metadata log grows, and a start takes longer.",
                delay,
                error,
            )

    # Writing

    def _begin(self) -> MetadataImage:
        """The image to write. The log rolls at its end, which is the end of the image unless a commit is under way."""
        if not self._failures:  # otherwise every attempt would begin a segment
            self._log.roll(self._host.now_ms())
        return self._log.image

    async def _write(self, image: MetadataImage) -> None:
        snapshots, snapshot_id = self._log.snapshots, id_of(image)
        assert snapshot_id.end_offset <= self._log.synced_offset, (
            "a snapshot is never ahead of the log on disk"
        )
        control = self._log.control_before(snapshot_id.end_offset)
        part = snapshots.create_part(snapshot_id)
        try:
            with pinned(part):
                size = await self._finish(write_snapshot(part, image, control))
                await self._in_thread(part.sync)
            self._log.checkpoint()  # so that a log that ends before its snapshot is detected as damaged
            snapshots.complete(snapshot_id)
        except BaseException:
            part.close()
            snapshots.remove_part(snapshot_id)
            raise
        part.close()
        names = snapshots.names()
        with pinned(names):
            await self._in_thread(names.sync)
        snapshots.add(image, snapshot_id, size)
        self._log.snapshot_added(self._host.now_ms())
        self._written_at = self._host.monotonic()
        if self._failures:
            logger.info("a metadata snapshot was written at attempt %d", self._failures + 1)
            self._failures = 0
        logger.info("wrote a metadata snapshot up to offset %d, %d bytes", snapshot_id.end_offset, size)

    async def _in_thread(self, work: Callable[[], None]) -> None:
        """Wait for the thread even if cancelled: the file must stay open while it works."""
        task = self._host.create_task(self._host.in_thread(work))
        try:
            await asyncio.shield(task)
        finally:
            await asyncio.gather(task, return_exceptions=True)

    # Deleting

    def _delete_old(self) -> None:
        """Delete the oldest part while it is too old, or everything together is too large."""
        log, snapshots = self._log, self._log.snapshots
        while snapshots.ids:
            oldest = snapshots.ids[0]
            if log.start_offset < oldest.end_offset:
                since_ms, following = log.first_timestamp_ms, oldest
            elif len(snapshots.ids) > 1:
                since_ms, following = snapshots.timestamp_ms(oldest), snapshots.ids[1]
            else:
                return
            if not self._is_too_much(since_ms):
                return
            now_ms = self._host.now_ms()
            log.delete_before(following.end_offset, now_ms)
            snapshots.retire_before(following, log.deletions, now_ms + log.file_delete_delay_ms)
            logger.info("the metadata log starts at offset %d now", following.end_offset)

    def _is_too_much(self, since_ms: int) -> bool:
        policy, log = self._policy, self._log
        if 0 <= policy.retention_ms < self._host.now_ms() - since_ms:
            return True
        return 0 <= policy.retention_bytes < log.size_bytes + log.snapshots.size_bytes
