"""Periodic work: retention, checkpoints, metadata snapshots, and removing the files of deleted logs.

All partitions share its timers. Idle ones cost nothing: the store knows which logs are due, and checkpoints are written
only after something was appended or deleted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from odradek.config.broker import BrokerConfig
from odradek.host.log_lines import counted
from odradek.model import TopicPartition
from odradek.replication.replica import Replica
from odradek.replication.replicas import Replicas
from odradek.services.cluster.metadata import BrokerMetadata
from odradek.storage.store import LogStore

log = logging.getLogger(__name__)

METADATA_SECONDS = 5.0  # at most, between two checkpoints of the metadata log: see `raft.store`


class Maintenance:
    def __init__(
        self,
        store: LogStore,
        metadata: BrokerMetadata,
        replicas: Replicas,
        config: BrokerConfig,
        now_ms: Callable[[], int],
        retry_failed: Callable[[], None],
    ) -> None:
        """`retry_failed` retries what failed earlier, such as logs that could not be opened."""
        self._store = store
        self._metadata = metadata
        self._now_ms = now_ms
        self._retry_failed = retry_failed
        self._replicas = replicas
        self._retention_seconds = config["log.retention.check.interval.ms"] / 1000
        self._checkpoint_seconds = config["replica.high.watermark.checkpoint.interval.ms"] / 1000
        self._unsaved: dict[TopicPartition, Replica] = {}  # appended to since the last checkpoint

    def appended(self, replica: Replica) -> None:
        self._unsaved[replica.topic_partition] = replica

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.gather(
            self._repeat(self._retention_seconds, self.look_after_logs),
            self._repeat(self._checkpoint_seconds, self.checkpoint),
            self._repeat(min(self._checkpoint_seconds, METADATA_SECONDS), self._metadata.checkpoint),
            self._repeat(self._checkpoint_seconds, self._metadata.maintain),
            self._repeat(self._checkpoint_seconds, self._remove_deleted),
        )

    @staticmethod
    async def _repeat(seconds: float, work: Callable[[], Awaitable[None] | None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                unfinished = work()
                if unfinished is not None:
                    await unfinished
            except OSError as error:  # for as long as a disk is full, for example
                what = error.strerror or type(error).__name__
                counted(
                    log,
                    logging.ERROR,
                    "",
                    what,
                    "maintenance failed, trying again in %g s: %s",
                    seconds,
                    error,
                )
            except Exception:
                log.exception("maintenance failed, trying again in %g s", seconds)

    def look_after_logs(self) -> None:
        self._store.maintain(self._now_ms(), self._high_watermark)

    def _high_watermark(self, topic_partition: TopicPartition) -> int:
        replica = self._replicas.present(*topic_partition)
        return replica.high_watermark if replica else 0

    async def _remove_deleted(self) -> None:
        while self._store.deletions.run_next(self._now_ms()):
            await asyncio.sleep(0)  # requests come first

    def checkpoint(self) -> None:
        self._retry_failed()
        if self._unsaved or self._store.needs_checkpoint:
            unsaved, self._unsaved = self._unsaved, {}
            for replica in unsaved.values():
                replica.is_touched = False
            try:
                self._store.checkpoint(
                    {
                        name: replica.high_watermark
                        for name, replica in unsaved.items()
                        if self._replicas.present(*name) is replica  # not deleted meanwhile
                    }
                )
            except OSError:
                self._unsaved = unsaved | self._unsaved
                raise
