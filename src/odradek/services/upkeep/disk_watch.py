"""Watches the free space of the data directory, and says when users' records must be refused.

`storage.disk.room` decides; this looks at the disk from time to time, and at once when a write failed for want of
space. When the disk becomes full, the broker tells the controller in a heartbeat (`services.cluster.lifecycle`), which
gives its leaderships to other in-sync replicas; it refuses what producers still send to it, and copies nothing as a
follower. When there is room again, and a probe could be written, all of that ends by itself.
"""

import asyncio
import errno
import logging
from collections.abc import Callable
from contextlib import suppress

from odradek.errors import ErrorCode, KafkaError
from odradek.host.interface import DiskSpace, Host
from odradek.storage.disk.files import Files
from odradek.storage.disk.room import Level, Room
from odradek.wording import count_of

log = logging.getLogger(__name__)

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
PROBE = "room-probe"
PROBE_BYTES = 65536


class DiskWatch:
    def __init__(
        self,
        directory: str,
        reserve_bytes: int,
        host: Host,
        files: Files,
        count_leaders: Callable[[], int],
        on_change: Callable[[bool], None],
    ) -> None:
        """`on_change` is called with whether the disk is full, when that changes."""
        self._directory = directory
        self._host = host
        self._files = files
        self._count_leaders = count_leaders
        self._on_change = on_change
        self.room = Room(reserve_bytes)
        self.is_full = False  # leaderships go elsewhere, and users' records are refused
        self.refused = 0  # batches of producers, since the start

    @property
    def keeps_its_rest(self) -> bool:
        """False while a write failed though there is room: then each write shows by itself whether it is possible."""
        return self.room.is_short

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                self.look()
            except Exception:
                log.exception("cannot look at the free space of %s: trying again", self._directory)
            await asyncio.sleep(self.room.next_look_seconds)

    def space(self) -> DiskSpace:
        return self._host.disk_space(self._directory)

    def reconfigure(self, reserve_bytes: int) -> None:
        self.room.reserve_bytes = reserve_bytes

    def look(self) -> None:
        before, now = self.room.level, self._host.monotonic()
        self.room.look(*self.space(), now)
        if self.room.wants_probe(now) and self._can_write():
            self.room.probe_succeeded(now)
        self._tell(before)

    def write_failed(self, error: KafkaError | OSError) -> None:
        """A record could not be written. If that was for want of space, the disk is full, whatever it says."""
        cause = error.__cause__ if isinstance(error, KafkaError) else error
        if self.is_full or not isinstance(cause, OSError) or cause.errno not in NO_SPACE:
            return
        self.look()
        if not self.is_full:
            before = self.room.level
            self.room.write_failed(self._host.monotonic())
            self._tell(before)

    def refusal(self) -> KafkaError:
        """Refuse a batch that a producer sent."""
        self.refused += 1
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, "The disk of this broker is full: it accepts no more records."
        )

    def _can_write(self) -> bool:
        path = f"{self._directory}/{PROBE}"
        try:
            file = self._files.create(path)
            try:
                file.write_at(0, bytes(PROBE_BYTES))
            finally:
                file.close()
        except OSError:
            return False
        finally:
            with suppress(OSError):
                self._files.remove(path)
        return True

    def _tell(self, before: Level) -> None:
        level, room = self.room.level, self.room
        if level is before:
            return
        free, reserve = megabytes(room.free_bytes), megabytes(room.reserve)
        if level is Level.FULL:
            why = f"{free} free, and {reserve} are kept in reserve (disk.reserve.bytes), so users' records are refused"
            if not room.is_short:
                why = f"a write failed for want of space, though {free} are free: look at quotas and inodes"
            log.error(
                "the disk of %s is full: %s; %s to other in-sync replicas, where there are any. "
                "Free space, delete topics or lower their retention",
                self._directory,
                why,
                _leaderships_go(self._count_leaders()),
            )
        elif before is Level.FULL:
            log.info("the disk of %s has room again: %s free, accepting records", self._directory, free)
        elif level is Level.LOW:
            self._warn(free, reserve)
        if (level is Level.FULL) is not self.is_full:
            self.is_full = level is Level.FULL
            self._on_change(self.is_full)

    def _warn(self, free: str, reserve: str) -> None:
        seconds = self.room.seconds_left(self._host.monotonic())
        when = "" if seconds is None else f", and will be full in {seconds:.0f} s at the current rate"
        log.warning(
            "the disk of %s has %s free%s: below %s this broker refuses users' records. "
            "Free space, delete topics or lower their retention",
            self._directory,
            free,
            when,
            reserve,
        )


def _leaderships_go(count: int) -> str:
    return f"{count_of(count, 'leadership')} {'goes' if count == 1 else 'go'}"


def megabytes(count: int) -> str:
    return f"{count / 1_000_000:,.1f} MB"
