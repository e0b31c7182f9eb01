"""Reads all logs again, slowly, and compares the CRC of every batch: damage is found before somebody needs the records.

One pass goes through all logs, in random order, so that a broker that restarts often does not always begin with the
same ones. The next pass begins `log.integrity.check.interval.ms` after the last one began. The rate is bounded
(`log.integrity.check.bytes.per.second`), and the work is done in a thread, in small pieces.

What is found is reported like what any reader finds (`storage.segments.damage`).
"""

import asyncio
import logging
from contextlib import suppress
from random import Random

from odradek.config.broker import BrokerConfig
from odradek.errors import KafkaError
from odradek.host.interface import Host
from odradek.host.metrics import Metrics
from odradek.storage.disk.files import pinned
from odradek.storage.log.integrity import CheckedPiece, check_piece
from odradek.storage.log.log import Log
from odradek.storage.segments.segment import Segment
from odradek.storage.store import LogStore
from odradek.wording import count_of

log = logging.getLogger(__name__)

RATE = "log.integrity.check.bytes.per.second"
INTERVAL = "log.integrity.check.interval.ms"
FIRST_SECONDS = 60.0  # after the start, when there is enough to do


class IntegrityCheck:
    def __init__(
        self, host: Host, store: LogStore, config: BrokerConfig, rng: Random, metrics: Metrics
    ) -> None:
        self._host = host
        self._store = store
        self._config = config
        self._rng = rng
        self._metrics = metrics
        self._reconfigured = asyncio.Event()

    def reconfigure(self, config: BrokerConfig) -> None:
        if (config[RATE], config[INTERVAL]) != (self._config[RATE], self._config[INTERVAL]):
            self._reconfigured.set()
        self._config = config

    async def run(self) -> None:
        """Until cancelled."""
        due = self._host.monotonic() + min(FIRST_SECONDS, self._config[INTERVAL] / 1000)
        while True:
            while self._config[RATE] <= 0 or self._host.monotonic() < due:
                await self._rest(due)
            due = self._host.monotonic() + self._config[INTERVAL] / 1000
            try:
                await self.check_all()
            except Exception:
                log.exception("the integrity check failed: this is a bug; the next one begins as planned")

    async def _rest(self, due: float) -> None:
        """Until then, or until the settings change. While the check is off, only for the latter."""
        self._reconfigured.clear()
        seconds = max(due - self._host.monotonic(), 0.0) if self._config[RATE] > 0 else None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._reconfigured.wait()

    async def check_all(self) -> None:
        names = sorted(self._store.logs)
        self._rng.shuffle(names)
        checked, damaged = self._metrics.checked_bytes, self._store.damages.found
        for name in names:
            found = self._store.get(name)
            if found is not None:
                await self._check_log(found)
        checked, damaged = self._metrics.checked_bytes - checked, self._store.damages.found - damaged
        if checked:
            log.info(
                "checked %s of %s: %s damaged",
                count_of(checked, "byte"),
                count_of(len(names), "log"),
                count_of(damaged, "segment") if damaged else "nothing is",
            )

    async def _check_log(self, checked: Log) -> None:
        """A log that is deleted, cut or compacted meanwhile is looked at again in the next pass."""
        for segment in list(checked.segments):
            size, position, expected = segment.size, 0, segment.base_offset
            while position < size and self._has(checked, segment, size):
                found = await self._check_piece(checked, segment, position, size, expected)
                if found is None or not self._has(checked, segment, size):
                    break
                if found.damage:
                    segment.damaged_at(found.position, found.offset, found.damage)
                    break
                self._metrics.checked_bytes += found.position - position
                await self._pay_for(found.position - position)
                position, expected = found.position, found.offset

    def _has(self, checked: Log, segment: Segment, size: int) -> bool:
        """These bytes are still part of the log."""
        return (
            self._store.get(checked.topic_partition) is checked
            and segment in checked.segments
            and segment.size >= size
        )

    async def _check_piece(
        self, checked: Log, segment: Segment, position: int, size: int, expected: int
    ) -> CheckedPiece | None:
        segments = checked.segments
        slot = segments.index(segment) + 1
        limit = segments[slot].base_offset if slot < len(segments) else checked.end_offset
        try:
            with pinned(segment.log):
                return await self._host.in_thread(check_piece, segment.log, position, size, expected, limit)
        except (OSError, KafkaError) as error:  # there is no descriptor, or the file was removed
            log.debug("cannot check %s now: %s", segment.log.path, error)
            return None

    async def _pay_for(self, byte_count: int) -> None:
        rate = self._config[RATE]
        await asyncio.sleep(byte_count / rate if rate > 0 else 0)
