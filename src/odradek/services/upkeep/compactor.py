"""Compacts logs: chooses one, has it cleaned in a separate process, and records how far it is clean."""

import asyncio
import logging
from contextlib import suppress

from odradek.config.broker import BrokerConfig
from odradek.host.interface import Host
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import ResourceType
from odradek.model import TopicPartition
from odradek.replication.replica import Replica
from odradek.replication.replicas import Replicas
from odradek.storage.compaction.choice import CleaningTarget, choose, facts_of
from odradek.storage.compaction.clean_offsets import CleanOffsets
from odradek.storage.compaction.cleaner import Cleaner, CleaningFailed
from odradek.storage.disk.files import Files
from odradek.storage.disk.shortage import CannotOpen

log = logging.getLogger(__name__)


class Compactor:
    def __init__(
        self, host: Host, files: Files, replicas: Replicas, config: BrokerConfig, data_directory: str
    ) -> None:
        self._now_ms = host.now_ms
        self._replicas = replicas
        self._config = config
        self._reconfigured = asyncio.Event()  # ends the pause, which may be shorter now
        self._clean_offsets = CleanOffsets(files, data_directory)
        self._cleaner = Cleaner(
            files,
            host.start_cleaner,
            bytes_per_second=config["log.cleaner.io.max.bytes.per.second"],
            map_bytes=config["log.cleaner.dedupe.buffer.size"],
        )
        self._is_short = False  # the last attempt found no free descriptor
        self._candidates: dict[TopicPartition, None] = dict.fromkeys(
            replica.topic_partition for replica in replicas if len(replica.log.segments) > 1
        )

    def appended(self, replica: Replica) -> None:
        if replica.log.config.compact and replica.log.segments:
            self._candidates[replica.topic_partition] = None

    def reconfigure(self, config: BrokerConfig) -> None:
        """Takes effect with the next log: the one that is being cleaned keeps the old settings."""
        self._config = config
        self._cleaner.bytes_per_second = config["log.cleaner.io.max.bytes.per.second"]
        self._cleaner.map_bytes = config["log.cleaner.dedupe.buffer.size"]
        self._reconfigured.set()

    def configured(self, delta: MetadataDelta) -> None:
        """Settings changed: a topic may have a cleanup.policy of `compact` from now on."""
        for resource in sorted(delta.changed_configs):
            if resource.type == ResourceType.TOPIC:
                topic = delta.after.topics.get(resource.name)
                indexes = topic.partitions if topic else ()
                concerned = [self._replicas.present(resource.name, index) for index in indexes]
            else:
                concerned = list(self._replicas)  # a broker's settings are the defaults of every topic
            for replica in filter(None, concerned):
                self.appended(replica)

    def removed(self, replica: Replica) -> None:
        """The partition is deleted: stop work on it before its directory is renamed."""
        name = replica.topic_partition
        self._cleaner.abort(name)
        self._cleaner.forget(name)
        self._clean_offsets.forget(name)
        self._candidates.pop(name, None)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                if not await self._try_to_clean_one():
                    await self._cleaner.stop()
                    await self._rest()
        finally:
            await self._cleaner.stop()

    async def _rest(self) -> None:
        """Not with `wait_for`, which loses a cancellation that arrives together with the event."""
        self._reconfigured.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config["log.cleaner.backoff.ms"] / 1000):
                await self._reconfigured.wait()

    async def _try_to_clean_one(self) -> bool:
        """Survive any error: if this loop ended, nothing would be compacted until a restart."""
        try:
            return await self.clean_one()
        except OSError as error:
            log.error("compaction stopped, trying again: %s", error)
        except Exception:
            log.exception("compaction failed, trying again")
        return False

    async def clean_one(self) -> bool:
        """Clean the log that needs it most. True if there was one and it was cleaned."""
        now_ms = self._now_ms()
        target = self._choose(now_ms)
        replica = self._replicas.present(*target.partition) if target else None
        if target is None or replica is None:
            return False
        try:
            stats = await self._cleaner.clean(replica.log, target, now_ms)
        except CannotOpen as error:
            if not self._is_short:
                self._is_short = True
                log.warning("cannot compact %s, trying again: %s", target.partition, error)
            return False
        except (CleaningFailed, OSError) as error:
            self._candidates.pop(target.partition, None)
            log.warning("cannot compact %s: %s", target.partition, error)
            return False
        self._is_short = False
        if self._replicas.present(*target.partition) is not replica:
            return True  # deleted meanwhile: a new log of this name is not clean
        self._clean_offsets.note(target.partition, stats.end_offset)
        log.info("compacted %s up to offset %d", target.partition, stats.end_offset)
        return True

    def _choose(self, now_ms: int) -> CleaningTarget | None:
        facts = []
        for name in list(self._candidates):
            replica = self._candidate(name)
            if replica is None:
                self._candidates.pop(name, None)
            else:
                clean_offset = self._clean_offsets.offsets.get(name)
                facts.append(facts_of(replica.log, replica.last_stable_offset, clean_offset))
        return choose(facts, now_ms)

    def _candidate(self, name: TopicPartition) -> Replica | None:
        replica = self._replicas.present(*name)
        if replica is None or not replica.log.config.compact or name in self._cleaner.uncleanable:
            return None
        return replica
