"""What the broker passes to a coordinator's runner, in memory and on virtual time.

The runner, its journal and its partition are the broker's own. Only the clock, the timers and the log's files are
replaced, by `VirtualHost` and `MemoryLog`.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from odradek.coordinators.journal import Journal
from odradek.coordinators.runtime import EncodedRecord, StateBatch
from odradek.metadata.image import Partition
from odradek.model import OFFSETS_TOPIC, TopicPartition
from odradek.records.batch import BatchHeader, patch_placement, read_header
from odradek.records.record import Record, build_batch, decode_batch
from odradek.replication.leader import Leader
from odradek.replication.settings import ReplicaSettings
from odradek.storage.log.run import AppendResult
from odradek.storage.producers.markers import Marker, read_marker
from odradek.storage.producers.state import Producers
from odradek.storage.producers.verification import Verification

NOTHING = lambda: None  # noqa: E731
NODE = 1


class VirtualTimer:
    __slots__ = ("arguments", "callback")

    def __init__(self, callback: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.callback: Callable[..., None] | None = callback
        self.arguments = arguments

    def cancel(self) -> None:
        self.callback = None


class VirtualHost:
    """A `runner.Host` whose clock jumps from one timer to the next; those that are due together run in order."""

    def __init__(self, time_ms: int = 0) -> None:
        self.time_ms = time_ms
        self._timers: list[tuple[int, int, VirtualTimer]] = []
        self._count = 0

    def now_ms(self) -> int:
        return self.time_ms

    def steady_ms(self) -> int:
        return self.time_ms

    def call_soon(self, callback: Callable[..., None], *arguments: Any) -> VirtualTimer:
        return self.after(0, callback, *arguments)

    def call_later(self, seconds: float, callback: Callable[..., None], *arguments: Any) -> VirtualTimer:
        return self.after(round(seconds * 1000), callback, *arguments)

    def after(self, delay_ms: int, callback: Callable[..., None], *arguments: Any) -> VirtualTimer:
        self._count += 1
        timer = VirtualTimer(callback, arguments)
        heapq.heappush(self._timers, (self.time_ms + delay_ms, self._count, timer))
        return timer

    def run_for(self, duration_ms: int) -> None:
        self.run_until(self.time_ms + duration_ms)

    def run_until(self, end_ms: int, after_each: Callable[[], None] = NOTHING) -> None:
        timers = self._timers
        while timers and timers[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(timers)
            if timer.callback is not None:
                self.time_ms = due_ms
                timer.callback(*timer.arguments)
                after_each()
        self.time_ms = end_ms


class Slice(NamedTuple):
    """Of a log, which is its own file."""

    file: MemoryLog
    position: int
    length: int


class MemoryLog:
    """As much of a `storage.log.log.Log` as a partition and its journal use. It outlives its partitions."""

    log_start_offset = 0

    def __init__(self) -> None:
        self.batches: list[tuple[BatchHeader, bytes]] = []
        self.end_offset = 0
        self.synced_offset = 0
        self.batches_in_a_piece = 1_000_000
        self.on_read: Callable[[], None] = NOTHING  # may raise
        self.producers = Producers()
        self.leader_epochs = self

    # --- as a Log ---

    def begin(self, epoch: int, end_offset: int) -> None:
        """Leader epochs do not matter here."""

    def append_as_leader(
        self,
        batch: bytearray,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        check_sequence: bool,
        verification: Verification | None = None,
        marker: Marker | None = None,
    ) -> AppendResult:
        base_offset = self.end_offset
        if header.producer_id >= 0:
            _, marker = self.producers.check_batch(batch, header, check_sequence, verification, marker)
            self.producers.replay_batch(header, base_offset, marker)
        patch_placement(batch, base_offset, header.length, leader_epoch)
        self.batches.append((header._replace(base_offset=base_offset), bytes(batch)))
        self.end_offset = base_offset + header.last_offset_delta + 1
        return AppendResult(base_offset, self.end_offset - 1, False, now_ms)

    def read(self, offset: int, max_bytes: int, end_offset: int) -> Slice | None:
        self.on_read()
        for position, (header, _) in enumerate(self.batches):
            if header.next_offset > offset:
                return Slice(self, position, self.batches_in_a_piece)
        return None

    def read_at(self, position: int, length: int) -> bytes:
        return b"".join([batch for _, batch in self.batches[position : position + length]])

    # --- what happens to logs ---

    def write(self, key: bytes, value: bytes | None) -> None:
        """A record that some other broker has written."""
        batch = build_batch([Record(0, 0, key, value)])
        self.append_as_leader(batch, read_header(batch), 0, 0, False)
        self.synced_offset = self.end_offset

    def truncate(self, end_offset: int) -> None:
        """A crash: what was not synced may be lost, from a whole batch on."""
        while self.batches and self.batches[-1][0].next_offset > end_offset:
            self.batches.pop()
        self.end_offset = self.synced_offset = end_offset
        self.producers.clear()
        for header, batch in self.batches:
            if header.producer_id >= 0:
                self.producers.replay_batch(header, header.base_offset, read_marker(batch, header))

    def compact(self) -> None:
        """Keep the newest record of each key where it is, and no tombstones."""
        kept: list[tuple[BatchHeader, list[Record]]] = [
            (header, decode_batch(batch, header)) for header, batch in self.batches
        ]
        newest = {record.key: record.offset for _, records in kept for record in records}
        self.batches = []
        for header, records in kept:
            left = [
                record
                for record in records
                if record.value is not None and newest[record.key] == record.offset
            ]
            if left:
                last_offset = header.next_offset - 1
                batch = build_batch(left, base_offset=header.base_offset, last_offset=last_offset)
                self.batches.append((read_header(batch), bytes(batch)))

    def records(self) -> list[EncodedRecord]:
        return [
            (record.key or b"", record.value)
            for header, batch in self.batches
            for record in decode_batch(batch, header)
        ]


class WatchedJournal(Journal):
    """`before` sees each batch that is to be appended, and may raise instead; `after` sees those that were."""

    def __init__(
        self,
        leader: Leader,
        before: Callable[[StateBatch], None],
        after: Callable[[StateBatch], None],
    ) -> None:
        super().__init__(leader)
        self._before = before
        self._after = after

    def append(self, batch: StateBatch, now_ms: int) -> int:
        self._before(batch)
        last_offset = super().append(batch, now_ms)
        self._after(batch)
        return last_offset


def lead(log: MemoryLog, appended: Callable[[], None] = NOTHING, synced_offset: int | None = None) -> Leader:
    """A broker takes over: all that is in its log is committed, or all before `synced_offset`. `appended` is told of
    every append."""
    log.synced_offset = log.end_offset if synced_offset is None else synced_offset
    return Leader(
        TopicPartition(OFFSETS_TOPIC, 0),
        log,  # type: ignore[arg-type]
        ReplicaSettings(min_insync_replicas=1),
        NODE,
        Partition(
            leader=NODE, leader_epoch=0, partition_epoch=0, isr=(NODE,), replicas=(NODE,), directories=()
        ),
        high_watermark=0,
        now_ms=0,
        appended=appended,
    )


def sync(leader: Leader, offset: int | None = None) -> None:
    """Up to an offset, or all of it."""
    log: Any = leader.log
    log.synced_offset = max(log.synced_offset, log.end_offset if offset is None else offset)
    leader.maybe_advance_high_watermark()


class _Raising(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            raise record.exc_info[1]


@contextmanager
def logged_exceptions_raised() -> Iterator[None]:
    """A runner goes on after an exception and logs it. In a simulation it ends the run."""
    handler, logger = _Raising(), logging.getLogger("odradek")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
