"""The parts that the broker passes to a coordinator's runner, in memory and on virtual time.

The runner, its journal and its partition are the broker's own. Only the clock, the timers and the log's files are
replaced, by `VirtualHost` and `MemoryLog`. `CoordinatorWorld` puts them together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from odradek.coordinators.journal import Journal
from odradek.coordinators.runner import Runner
from odradek.coordinators.runtime import EncodedRecord, StateBatch
from odradek.errors import ErrorCode, KafkaError
from odradek.host.simulated import VirtualLoop
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


class _SteppedLoop(VirtualLoop):
    """Raises what a callback raises, and lets somebody look after each of them."""

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self._failure: BaseException | None = None
        self.after_each: Callable[[], None] = NOTHING
        self.set_exception_handler(self._failed)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._failure = context["exception"]

    def _run(self, handle: asyncio.Handle) -> None:
        super()._run(handle)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self.after_each()


class VirtualHost:
    """A `runner.Host` on the clock of all simulations, in whole milliseconds, for what has no tasks of its own.

    Events that are due together run in the order in which they were set. What one of them raises ends the run.
    """

    def __init__(self, time_ms: int = 0) -> None:
        self._loop = _SteppedLoop(time_ms / 1000)

    @property
    def time_ms(self) -> int:
        return round(self._loop.time() * 1000)

    def now_ms(self) -> int:
        return self.time_ms

    def steady_ms(self) -> int:
        return self.time_ms

    def call_soon(self, callback: Callable[..., None], *arguments: Any) -> asyncio.TimerHandle:
        return self.after(0, callback, *arguments)

    def call_later(
        self, seconds: float, callback: Callable[..., None], *arguments: Any
    ) -> asyncio.TimerHandle:
        return self.after(round(seconds * 1000), callback, *arguments)

    def after(self, delay_ms: int, callback: Callable[..., None], *arguments: Any) -> asyncio.TimerHandle:
        return self._loop.call_at((self.time_ms + delay_ms) / 1000, callback, *arguments)

    def run_for(self, duration_ms: int) -> None:
        self.run_until(self.time_ms + duration_ms)

    def run_until(self, end_ms: int, after_each: Callable[[], None] = NOTHING) -> None:
        self._loop.after_each = after_each
        self._loop.run_until_time(end_ms / 1000)


class Slice(NamedTuple):
    """A part of a log, which is its own file."""

    file: MemoryLog
    position: int
    length: int


class MemoryLog:
    """A `storage.log.log.Log`, as far as a partition and its journal use it. It outlives its partitions."""

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


AnyCoordinator = TypeVar("AnyCoordinator", bound=Any)


class CoordinatorWorld(Generic[AnyCoordinator]):
    """A coordinator with its runner, its partition and its log, on virtual time.

    The log is all that the next coordinator finds. What is appended is committed at once, unless `commits` is set to
    False: then `commit()` lets go. Appends are refused with `append_error`, if there is one.
    """

    partition: Leader
    runner: Runner[AnyCoordinator]
    perform: Callable[[Runner[AnyCoordinator], Any], None] | None = None  # if this kind has effects

    def __init__(self, time_ms: int = 1_000_000) -> None:
        self.host = VirtualHost(time_ms)
        self.log = MemoryLog()
        self.commits = True
        self.append_error: ErrorCode | None = None

    def new_coordinator(self) -> AnyCoordinator:
        raise NotImplementedError

    # --- the coordinator's life ---

    def take_over(self, synced_offset: int | None = None) -> None:
        """A broker becomes the coordinator, and has still to load what is in the log."""
        self.partition = lead(self.log, self.appended, synced_offset)
        journal = WatchedJournal(self.partition, self.before_append, self.after_append)
        self.runner = Runner(journal, self.new_coordinator, self.host, self.perform)

    def start(self, synced_offset: int | None = None) -> None:
        self.take_over(synced_offset)
        self.runner.begin_loading()
        self.host.run_for(0)

    @property
    def coordinator(self) -> AnyCoordinator:
        return self.runner.coordinator

    @property
    def now_ms(self) -> int:
        return self.host.time_ms

    # --- its appends ---

    def commit(self) -> None:
        sync(self.partition)

    def appended(self) -> None:
        if self.commits:
            self.commit()

    def before_append(self, batch: StateBatch) -> None:
        """May raise instead."""
        if self.append_error is not None:
            raise KafkaError(self.append_error)

    def after_append(self, batch: StateBatch) -> None:
        pass


def run_seeds(run: Callable[[int], Any], seeds: Iterable[int]) -> Iterator[Any]:
    """Yields what each run returns. Raises AssertionError, which names the seed."""
    for seed in seeds:
        try:
            yield run(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


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
