"""A partition's log: appending to it, reading from it, making it durable, cutting it.

A log is a row of segments; the last one is active and takes the appends. The leader's append is the hot
path: check the producer, patch offset and leader epoch into the batch, one write, and a few numbers in
memory. Nothing is decoded and nothing is read from disk.

What is written is not yet durable. `begin_sync` hands out the dirty files, `complete_sync` moves
`synced_offset`. A log whose sync failed never trusts its disk again: it is `failed`, takes no more appends,
and still serves reads. A write that failed (a full disk) is undone, and the next one may succeed.

A moment without descriptors (`CannotOpen`) is not a failed disk. Whatever must not stop half-way opens its files
first, so that nothing has changed if that fails. Where something has (a write whose undo finds the file closed), the
log remembers what is left to be done, and does it before it takes the next append.

Every method runs in the broker's one thread. Finding offsets by time is in `lookup.py`, deleting by age and
size in `retention.py`, opening and recovering in `recovery.py`.
"""

import logging
import random
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.records.batch import (
    CONTROL,
    BatchHeader,
    Buffer,
    patch_placement,
)
from odradek.storage.config import LogConfig
from odradek.storage.deletions import Deletions
from odradek.storage.epochs import LeaderEpochs
from odradek.storage.files import File, Files, pinned
from odradek.storage.indexes import MAX_RELATIVE_OFFSET, AbortedTransaction, find_aborted
from odradek.storage.leftovers import swap_in
from odradek.storage.markers import Marker, read_marker
from odradek.storage.producers import ProducedBatch, Producer, Producers
from odradek.storage.replay import rebuild_producers
from odradek.storage.retired import Retired
from odradek.storage.segment import Segment, remove_files
from odradek.storage.shortage import CannotOpen
from odradek.storage.snapshots import SUFFIX as SNAPSHOT_SUFFIX
from odradek.storage.snapshots import Snapshots
from odradek.storage.sync import SyncTicket, sync_tickets
from odradek.storage.tail import Tail
from odradek.storage.validate import checked_batches

logger = logging.getLogger(__name__)

MAX_FILES_OF_A_TICKET = 64

by_base_offset = attrgetter("base_offset")


class Appended(NamedTuple):
    """A repeated batch is not stored again: `base_offset` and `timestamp` are those of the first time."""

    base_offset: int
    last_offset: int
    duplicate: bool
    timestamp: int


def duplicate_of(batch: ProducedBatch) -> Appended:
    return Appended(batch.base_offset, batch.last_offset, True, batch.timestamp)


class Slice(NamedTuple):
    """Bytes of a segment file: ask `file.fileno()` anew for each use, descriptors are closed and reused."""

    file: File
    position: int
    length: int


class Log:
    """`end_offset`: of the next record. `synced_offset`: all below is on disk. `failed`: no more appends."""

    __slots__ = (
        "_config",
        "_dirty",
        "_files",
        "_retired",
        "_rng",
        "_tail",
        "_ticket",
        "_unmended",
        "active",
        "changed",
        "directory",
        "due_ms",
        "end_offset",
        "failed",
        "leader_epochs",
        "log_start_offset",
        "on_change",
        "producers",
        "segments",
        "snapshots",
        "synced_offset",
        "topic_id",
        "topic_partition",
        "unsaved",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        config: LogConfig,
        segments: list[Segment],
        leader_epochs: LeaderEpochs,
        snapshots: Snapshots,
        *,
        log_start_offset: int,
        end_offset: int,
        rng: random.Random,
        deletions: Deletions,
    ) -> None:
        self._files = files
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self._config = config
        self.segments = segments
        self.active = segments[-1]
        self.leader_epochs = leader_epochs
        self.producers = Producers()
        self.snapshots = snapshots
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset
        self.synced_offset = end_offset
        self.failed = False
        self._rng = rng
        self._dirty: dict[File, None] = {}
        self._ticket: SyncTicket | None = None
        self._retired = Retired(deletions)
        self._unmended: list[Callable[[], None]] = []  # to be done before anything is appended
        self._tail = Tail()
        self._tail.reset(end_offset)
        self.changed = False  # since the store last looked after this log
        self.unsaved = False  # in memory is what `persist_state` would write
        self.due_ms: int | None = None  # when the store looks after this log next
        self.on_change: Callable[[Log], None] | None = None  # told of the first change since then

    def __repr__(self) -> str:
        return f"<Log {self.topic_partition} {self.log_start_offset}..{self.end_offset}>"

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self.active.roll_after_ms = config.max_segment_ms - self._jitter_ms()
        self.mark_changed()

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def mark_changed(self) -> None:
        self.unsaved = True
        if not self.changed:
            self.changed = True
            if self.on_change is not None:
                self.on_change(self)

    # Appending

    def append_as_leader(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        check_sequence: bool = True,
    ) -> Appended:
        """Append one validated batch, patched in place. Coordinators send no sequences to check."""
        if self.failed or self._unmended:
            self._mend()
        marker = None
        if header.producer_id >= 0:
            duplicate, marker = self._check_producer(batch, header, check_sequence)
            if duplicate is not None:
                return duplicate_of(duplicate)
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        if leader_epoch != self.leader_epochs.persisted_epoch:
            self._enter_epoch(leader_epoch, base_offset)
        segment = self._segment_for(len(batch), base_offset, last_offset, header.max_timestamp, now_ms)
        patch_placement(batch, base_offset, header.length, leader_epoch)
        self._write(segment, batch, header, base_offset, marker)
        self._appended(segment, segment.size, len(batch), last_offset, header.max_timestamp)
        if header.producer_id >= 0:
            self._replay(header, base_offset, marker)
        if not self.changed:
            self.mark_changed()
        return Appended(base_offset, last_offset, False, header.max_timestamp)

    def append_all_as_leader(
        self, batches: Sequence[tuple[memoryview, BatchHeader]], leader_epoch: int, now_ms: int
    ) -> list[Appended | KafkaError]:
        """Append many batches of clients, by one write where they go into one segment; an answer for each."""
        if len(batches) > 1 and self._go_together(batches, leader_epoch):
            appended = self._append_together(batches, leader_epoch)
            if appended is not None:
                return appended
        return [self._try_to_append(batch, header, leader_epoch, now_ms) for batch, header in batches]

    def _try_to_append(
        self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> Appended | KafkaError:
        try:
            return self.append_as_leader(batch, header, leader_epoch, now_ms)
        except KafkaError as error:
            return error

    def _go_together(self, batches: Sequence[tuple[memoryview, BatchHeader]], leader_epoch: int) -> bool:
        """Whether nothing but the write itself can keep them from going into the active segment."""
        segment = self.active
        if (
            self.failed
            or self._unmended
            or not segment.loaded
            or leader_epoch != self.leader_epochs.persisted_epoch
        ):
            return False
        size = sum([len(batch) for batch, _ in batches])
        last_offset = self.end_offset + sum([header.record_count for _, header in batches])
        newest = max([header.max_timestamp for _, header in batches])
        return (
            segment.first_timestamp >= 0
            and newest - segment.first_timestamp <= segment.roll_after_ms
            and segment.size + size <= self._config.segment_bytes
            and last_offset - segment.base_offset <= MAX_RELATIVE_OFFSET
            and segment.has_index_room(size)
        )

    def _append_together(
        self, batches: Sequence[tuple[memoryview, BatchHeader]], leader_epoch: int
    ) -> list[Appended | KafkaError] | None:
        """One write for all; if it fails nothing has changed, and each has to be tried by itself."""
        segment, producers, base_offset = self.active, self.producers, self.end_offset
        answers: list[Appended | KafkaError] = []
        placed: list[memoryview] = []
        before: dict[int, Producer | None] = {}
        for batch, header in batches:
            if header.producer_id >= 0:
                if header.producer_id not in before:
                    before[header.producer_id] = producers.copy_of(header.producer_id)
                try:
                    repeated = producers.check(header, True)
                except KafkaError as error:
                    answers.append(error)
                    continue
                if repeated is not None:
                    answers.append(duplicate_of(repeated))
                    continue
                producers.replay(header, base_offset)
            patch_placement(batch, base_offset, header.length, leader_epoch)
            last_offset = base_offset + header.last_offset_delta
            answers.append(Appended(base_offset, last_offset, False, header.max_timestamp))
            placed.append(batch)
            base_offset = last_offset + 1
        try:
            segment.log.write_at(segment.size, b"".join(placed))
        except OSError as error:
            producers.put_back(before)
            if not isinstance(error, CannotOpen):
                self._undo_write()
            return None
        self._note_all(segment, answers, placed)
        return answers

    def _note_all(
        self, segment: Segment, answers: list[Appended | KafkaError], placed: list[memoryview]
    ) -> None:
        sizes = iter(placed)
        for answer in answers:
            if isinstance(answer, Appended) and not answer.duplicate:
                self._appended(segment, segment.size, len(next(sizes)), answer.last_offset, answer.timestamp)
        if not self.changed:
            self.mark_changed()

    def append_as_follower(self, batches: Buffer, now_ms: int) -> int:
        """Append what a leader's log holds: batches with their offsets, never below the end, gaps allowed.

        A last batch that is cut short is left out. Returns the bytes taken. If a write fails, the batches
        before it stay: the end offset tells how far the log came.
        """
        if self.failed or self._unmended:
            self._mend()
        view = memoryview(batches)
        taken = 0
        for header, batch in checked_batches(view, self.end_offset):
            marker = read_marker(batch, header) if header.is_control and header.producer_id >= 0 else None
            if header.leader_epoch != self.leader_epochs.persisted_epoch:
                self._enter_epoch(header.leader_epoch, header.base_offset)
            segment = self._segment_for(
                header.size, header.base_offset, header.last_offset, header.max_timestamp, now_ms
            )
            self._write(segment, batch, header, header.base_offset, marker)
            self._appended(segment, segment.size, header.size, header.last_offset, header.max_timestamp)
            if header.producer_id >= 0:
                self._replay(header, header.base_offset, marker)
            taken += header.size
        self.mark_changed()
        return taken

    def _check_producer(
        self, batch: Buffer, header: BatchHeader, check_sequence: bool
    ) -> tuple[ProducedBatch | None, Marker | None]:
        if not header.attributes & CONTROL:
            return self.producers.check(header, check_sequence), None
        marker = read_marker(batch, header)
        self.producers.check(header, False)
        if marker is not None:
            self.producers.check_marker(header, marker)
        return None, marker

    def _enter_epoch(self, epoch: int, start_offset: int) -> None:
        """The first batch of an epoch: the epoch is on disk before the batch is written."""
        self.leader_epochs.assign(epoch, start_offset)
        try:
            self.leader_epochs.persist()
        except OSError as error:
            raise self._storage_error("write its leader epochs", error) from error

    def _segment_for(
        self, size: int, base_offset: int, last_offset: int, timestamp: int, now_ms: int
    ) -> Segment:
        """The active segment, or a new one if this batch does not go into it any more."""
        segment = self.active
        if not segment.loaded:
            self._load_active()
        position = segment.size
        if size > self._config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"A batch of {size} bytes is larger than a segment of {self.topic_partition} may be",
            )
        first = segment.first_timestamp
        waited_ms = timestamp - first if first >= 0 else now_ms - segment.created_ms
        if (
            position + size > self._config.segment_bytes
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            or segment.index_full
            or (position and waited_ms > segment.roll_after_ms)
        ):
            return self.roll(now_ms, base_offset)
        return segment

    def _load_active(self) -> None:
        try:
            self.active.load()
        except OSError as error:
            raise self._storage_error("read its newest segment", error) from error

    def _write(
        self, segment: Segment, batch: Buffer, header: BatchHeader, base_offset: int, marker: Marker | None
    ) -> None:
        """Put the bytes on disk, and nothing else if that fails."""
        aborted = self.producers.aborted_by(header, base_offset, marker) if marker is not None else None
        try:
            segment.log.write_at(segment.size, batch)
        except CannotOpen as error:
            raise self._storage_error("append", error) from error
        except OSError as error:
            self._undo_write()
            raise self._storage_error("append", error) from error
        if aborted is not None:
            self._index_aborted(segment, aborted)

    def _index_aborted(self, segment: Segment, aborted: AbortedTransaction) -> None:
        try:
            if segment.aborted.file is None:
                names = self._files.to_sync(self.directory)
                with pinned(names):
                    segment.aborted.append(aborted)
                    self._sync_now(names)
            else:
                segment.aborted.append(aborted)
        except OSError as error:
            self._undo_write()
            raise self._storage_error("append", error) from error
        assert segment.aborted.file is not None
        self._dirty[segment.aborted.file] = None

    def _appended(self, segment: Segment, position: int, size: int, last_offset: int, timestamp: int) -> None:
        segment.appended(position, size, last_offset, timestamp)
        self._tail.add(last_offset, position)
        self._dirty[segment.log] = None
        self.end_offset = last_offset + 1

    def _replay(self, header: BatchHeader, base_offset: int, marker: Marker | None) -> None:
        if marker is not None:
            self.producers.replay_marker(header, base_offset, marker)
        elif not header.attributes & CONTROL:
            self.producers.replay(header, base_offset)

    # Undoing

    def _undo_write(self) -> None:
        """A write failed, perhaps after a part of it: cut that off now, or before the next append."""
        self._mend_later(self._cut_tail)
        try:
            self._do_unmended()
        except KafkaError as error:
            logger.error("%s. It takes no records until that is done.", error)

    def _cut_tail(self) -> None:
        """Whatever the files hold beyond the last batch was never appended."""
        self.active.log.truncate(self.active.size)
        self.active.aborted.truncate_to(self.end_offset)

    def _rebuild_producers(self) -> None:
        try:
            rebuild_producers(
                self.producers, self.snapshots, self.segments, self.log_start_offset, self.end_offset
            )
        finally:
            self._forget_removed_snapshots()

    def _mend_later(self, *steps: Callable[[], None]) -> None:
        self._unmended += [step for step in steps if step not in self._unmended]
        self.mark_changed()

    def _mend(self) -> None:
        """Do what was left undone, or refuse what is to be appended."""
        if self.failed:
            raise self._storage_error("append", "its disk has failed")
        self._do_unmended()
        logger.info("the log of %s takes records again", self.topic_partition)

    def _do_unmended(self) -> None:
        steps = self._unmended
        try:
            while steps:
                steps[0]()
                del steps[0]
        except CannotOpen as error:
            raise self._storage_error("finish its last change", error) from error
        except OSError as error:
            self.failed = True
            raise self._storage_error("finish its last change", error) from error

    # Rolling

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Bring the active segment to disk and begin a new one: a crash never leaves a hole between them."""
        old = self.active
        base_offset = self.end_offset if base_offset is None else base_offset
        if old.size == 0 and old.base_offset == base_offset:
            return old
        try:
            self._complete_active(base_offset)
            segment = self._create_segment(base_offset, now_ms)
        except OSError as error:
            raise self._storage_error("begin a new segment", error) from error
        segment.roll_after_ms = self._config.max_segment_ms - self._jitter_ms()
        self.segments.append(segment)
        self.active = segment
        self._tail.reset(base_offset)
        return segment

    def _create_segment(self, base_offset: int, now_ms: int) -> Segment:
        """All of its files, or none: with one of them left, and more appended to the segment before it, a later
        start would take the log to end where the new segment begins."""
        names = self._files.to_sync(self.directory)
        with pinned(names):
            try:
                segment = Segment.create(self._files, self.directory, base_offset, self._config, now_ms)
            except OSError:
                self._remove_unfinished(base_offset)
                raise
            finally:
                self._sync_now(names)
        return segment

    def _remove_unfinished(self, base_offset: int) -> None:
        try:
            remove_files(self._files, self.directory, base_offset)
        except OSError:
            self.failed = True
            raise

    def _complete_active(self, offset: int) -> None:
        """Bring all that is dirty, and what is known of the producers at this offset, to disk."""
        if self._unmended:
            self._mend()
        self.active.finish()
        snapshot = self.snapshots.write(self.producers, offset)
        self._dirty.update(dict.fromkeys([*self.active.files, *([snapshot] if snapshot else [])]))
        for file in self._dirty:
            with pinned(file):
                self._sync_now(file)
        self._dirty.clear()
        self.synced_offset = self.end_offset

    def maybe_roll(self, now_ms: int) -> None:
        """Roll a segment open for `segment.ms` by the clock, however old its records say they are."""
        active = self.active
        if active.size > 0 and now_ms - active.created_ms > active.roll_after_ms:
            self.roll(now_ms)

    def _jitter_ms(self) -> int:
        most = min(self._config.segment_jitter_ms, self._config.max_segment_ms)
        return self._rng.randrange(most) if most > 0 else 0

    # Reading

    def read(self, offset: int, max_bytes: int, upper_offset: int, minimum_one: bool = True) -> Slice | None:
        """Bytes from the batch that holds `offset`, up to where the one that holds `upper_offset` begins.

        At most `max_bytes`, possibly ending within a batch; with `minimum_one` the first batch is whole.
        """
        if not self.log_start_offset <= offset <= self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} has {self.log_start_offset} to {self.end_offset}, not {offset}",
            )
        if offset >= upper_offset or offset == self.end_offset:
            return None
        found = self._locate(offset)
        if found is None:
            return None
        segment, position, first_size = found
        length = self._position_of(segment, upper_offset) - position
        if length > max_bytes:
            length = min(length, max(max_bytes, first_size)) if minimum_one else max_bytes
        return Slice(segment.log, position, length) if length > 0 else None

    def _locate(self, offset: int) -> tuple[Segment, int, int] | None:
        """Segment, position and size of the first batch that ends at or after this offset."""
        active = self.active
        if offset >= self._tail.floor:
            position, size = self._tail.locate(offset, active.size)
            return (active, position, size) if size else None
        slot = bisect_right(self.segments, offset, key=by_base_offset) - 1
        for segment in self.segments[max(slot, 0) :]:
            found = segment.locate(offset)
            if found is not None:
                return segment, found[0], found[1].size
        return None

    def _position_of(self, segment: Segment, offset: int) -> int:
        """Where the batch that holds an offset begins; the segment's end if it lies beyond."""
        if segment is not self.active:
            following = self.segments[self.segments.index(segment) + 1]
            if offset >= following.base_offset:
                return segment.size
        elif offset >= self.end_offset:
            return segment.size
        elif offset >= self._tail.floor:
            return self._tail.locate(offset, segment.size)[0]
        found = segment.locate(offset)
        return found[0] if found is not None else segment.size

    # Durability

    def begin_sync(self) -> SyncTicket | None:
        """What must be synced, if anything and nobody is at it. The ticket always goes to `complete_sync`."""
        if not self._dirty or self._ticket is not None or self.failed:
            return None
        files: list[File] = []
        try:
            for file in islice(self._dirty, MAX_FILES_OF_A_TICKET):
                file.pin()
                files.append(file)
        except OSError as error:
            if not files or not isinstance(error, CannotOpen):
                for file in files:
                    file.unpin()
                raise self._storage_error("open what must be synced", error) from error
        if len(files) == len(self._dirty):
            self._dirty.clear()
            self._ticket = SyncTicket(files, self.end_offset)
        else:
            for file in files:
                del self._dirty[file]
            self._ticket = SyncTicket(files, self.synced_offset, is_partial=True)
        return self._ticket

    def complete_sync(self, ticket: SyncTicket, error: OSError | None) -> None:
        """After an error nobody knows what is on disk, and a second sync would not tell: the log failed."""
        assert ticket is self._ticket
        self._ticket = None
        for file in ticket.files:
            file.unpin()
        if error is not None:
            self.failed = True
        else:
            self.synced_offset = max(self.synced_offset, ticket.offset)

    def sync(self) -> None:
        """Sync here and now. No ticket may be out."""
        assert self._ticket is None
        while (ticket := self.begin_sync()) is not None:
            (error,) = sync_tickets(self._files, [ticket])
            self.complete_sync(ticket, error)
            if error is not None:
                raise self._storage_error("sync", error) from error

    @contextmanager
    def held_open(self) -> Iterator[None]:
        """Open what an append and its sync need, so that a record is not left between the two for want of a
        descriptor."""
        with ExitStack() as stack:
            try:
                stack.enter_context(pinned(self.active.log, *self._dirty))
            except OSError as error:
                raise self._storage_error("open its files", error) from error
            yield

    def _sync_directory(self) -> None:
        names = self._files.to_sync(self.directory)
        with pinned(names):
            self._sync_now(names)

    def _sync_now(self, file: File) -> None:
        """Sync a file that is pinned: whatever goes wrong then, the disk has failed."""
        try:
            file.sync()
        except OSError:
            self.failed = True
            raise

    def mark_unsynced(self, files: list[File], synced_offset: int) -> None:
        """These files were made, or read by recovery, which does not tell whether they are on disk."""
        self._dirty.update(dict.fromkeys(files))
        self.synced_offset = min(self.synced_offset, synced_offset)

    def persist_state(self) -> None:
        """Bring all that is kept in memory to disk: a later start finds everything in place."""
        try:
            self._complete_active(self.end_offset)
            self.leader_epochs.persist()
            self._sync_directory()
        except OSError as error:
            raise self._storage_error("write its state", error) from error
        self.unsaved = False

    def move(self, directory: str) -> None:
        """The directory was renamed."""
        segments = (*self.segments, *self._retired)
        files = {file for segment in segments for file in segment.files}.union(self._dirty)
        for file in files:
            if file.path.startswith(self.directory):
                file.path = directory + file.path.removeprefix(self.directory)
        self.directory = directory

    def close(self) -> None:
        """Close the files, and nothing else: `persist_state` and `sync` come before."""
        for segment in (*self.segments, *self._retired):
            segment.close()

    # Cutting

    def truncate_to(self, offset: int) -> bool:
        """Cut off all from this offset on, and the whole batch that holds it. False if there is nothing."""
        if offset >= self.end_offset:
            self.leader_epochs.truncate_from_end(self.end_offset)
            return False
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        kept = self.segments[bisect_right(self.segments, offset, key=by_base_offset) - 1]
        names = self._files.to_sync(self.directory)
        try:
            with pinned(names, *kept.files):
                self._truncate(kept, offset, names)
        except CannotOpen as error:
            raise self._storage_error("truncate", error) from error
        except OSError as error:
            self.failed = True
            raise self._storage_error("truncate", error) from error
        self._do_unmended()
        return True

    def _truncate(self, kept: Segment, offset: int, names: File) -> None:
        """`kept` becomes the last segment. Its files and the directory are open."""
        self._unmended.clear()  # what lies beyond the end is cut off here, or removed
        kept.load()
        found = kept.locate(offset)
        if found is not None:
            offset = min(offset, found[1].base_offset)
        self._remove_segments(lambda segment: segment is not kept, names)
        kept.truncate_to(offset)
        for file in kept.files:
            file.sync()
        self._ends_at(offset)
        self.synced_offset = offset  # older segments were synced when they were rolled
        self.log_start_offset = min(self.log_start_offset, offset)
        self.leader_epochs.truncate_from_end(offset)
        self._mend_later(self.leader_epochs.persist, self._rebuild_producers)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all data; the next record gets this offset."""
        names = self._files.to_sync(self.directory)
        try:
            with pinned(names):
                self._start_over_at(offset, names)
        except OSError as error:
            raise self._storage_error("truncate", error) from error
        self._ends_at(offset)
        self.log_start_offset = self.synced_offset = offset

    def _start_over_at(self, offset: int, names: File) -> None:
        try:
            self._remove_segments(lambda segment: True, names)
            self._remove_snapshots(lambda _: True)
            self.active = Segment.create(self._files, self.directory, offset, self._config, 0)
            self.segments.append(self.active)
            names.sync()
            self.leader_epochs.clear()
            self.leader_epochs.persist()
        except OSError:
            self.failed = True  # there is no segment left to append to
            raise
        self._unmended.clear()
        self.producers.clear()

    def _remove_segments(self, condition: Callable[[Segment], bool], names: File) -> None:
        """Newest first: a crash in between leaves a log that ends earlier, and never one with a hole."""
        while self.segments and condition(self.segments[-1]):
            segment = self.segments.pop()
            for file in segment.files:
                self._dirty.pop(file, None)
            segment.remove()
        if self.segments:
            self.active = self.segments[-1]
        names.sync()

    def _ends_at(self, offset: int) -> None:
        self.end_offset = offset
        self.synced_offset = min(self.synced_offset, offset)
        if self._ticket is not None:
            self._ticket.offset = min(self._ticket.offset, offset)
        self._tail.reset(offset)
        self.mark_changed()

    def delete_records_before(self, offset: int) -> int:
        """Let the log start at this offset; retention removes the segments before. Returns the start."""
        if offset > self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} ends at {self.end_offset}, before {offset}",
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)
            self.mark_changed()
        return self.log_start_offset

    def delete_segments(self, count: int, now_ms: int) -> None:
        """Drop the oldest segments; their files get another name now and are removed later."""
        if count == len(self.segments):
            self.roll(now_ms)
        old = self.segments[:count]
        self.delete_records_before(self.segments[count].base_offset)
        try:
            self._retire(old, now_ms)
            self._remove_snapshots(lambda offset: offset < self.segments[count].base_offset)
        except OSError as error:
            raise self._storage_error("delete old segments", error) from error
        finally:
            del self.segments[:count]

    def _retire(self, segments: list[Segment], now_ms: int) -> None:
        for segment in segments:
            for file in segment.files:
                self._dirty.pop(file, None)
            self._retired.add(segment, now_ms + self._config.file_delete_delay_ms)

    def replace_segments(self, old: list[Segment], new: list[Segment], now_ms: int) -> None:
        """Put compacted segments, made with `.cleaned` behind their names and finished, in others' place.

        Wherever this is interrupted, opening the log finds all of the old ones or completes the new. `new`
        may be empty only if the log keeps another segment.
        """
        try:
            swap_in(self._files, self.directory, new, lambda: self._retire(old, now_ms))
        except CannotOpen as error:
            raise self._storage_error("replace segments", error) from error
        except OSError as error:
            self.failed = True
            raise self._storage_error("replace segments", error) from error
        first = self.segments.index(old[0])
        self.segments[first : first + len(old)] = new
        kept = {segment.base_offset for segment in self.segments}
        self._remove_snapshots(lambda offset: offset <= self.active.base_offset and offset not in kept)

    def _remove_snapshots(self, condition: Callable[[int], bool]) -> None:
        try:
            self.snapshots.remove(condition)
        finally:
            self._forget_removed_snapshots()

    def _forget_removed_snapshots(self) -> None:
        """What is not there any more cannot be synced, and need not be."""
        there = set(map(self.snapshots.path, self.snapshots.offsets))
        for file in [file for file in self._dirty if file.path.endswith(SNAPSHOT_SUFFIX)]:
            if file.path not in there:
                del self._dirty[file]

    # Transactions

    def last_stable_offset(self, high_watermark: int) -> int:
        """What a consumer that reads only committed data may see ends here."""
        first_unstable = self.producers.first_unstable_offset(high_watermark)
        if first_unstable is None:
            return high_watermark
        return min(high_watermark, max(first_unstable, self.log_start_offset))

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions that have data or a marker between two offsets, by first offset."""
        segments = self.segments
        if len(segments) > 1:
            segments = segments[max(bisect_right(segments, start, key=by_base_offset) - 1, 0) :]
        indexes = [segment.aborted for segment in segments if segment.aborted.file is not None]
        return find_aborted(indexes, start, end) if indexes else []

    # Failing

    def _storage_error(self, what: str, reason: OSError | str) -> KafkaError:
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {self.topic_partition} could not {what}: {reason}"
        )
