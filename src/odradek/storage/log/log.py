"""A partition's log: appending to it, reading from it, making it durable, cutting it.

A log is a row of segments (`segments/row.py`), and what is known about the records in it: their producers,
leader epochs and range of offsets. The leader's append is the hot path: check the producer, patch offset and leader
epoch into the batch, one write, and a few numbers in memory. Nothing is decoded and nothing is read from disk.

What is written is not yet durable. `begin_sync` hands out the dirty files, `complete_sync` moves `synced_offset`
(`disk/sync.py`). The meaning of disk errors is decided in one place (`disk/health.py`): a write that failed is
undone, and the next one may succeed; a log whose sync failed never trusts its disk again.

Every method runs in the broker's one thread. Finding offsets by time is in `lookup.py`, deleting by age and
size in `retention.py`, creating and opening in `opening.py`, recovering in `recovery.py`.
"""

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.records.batch import BatchHeader, Buffer, patch_placement
from odradek.storage.config import LogConfig
from odradek.storage.disk.files import File, pinned
from odradek.storage.disk.health import Health, Step
from odradek.storage.disk.shortage import CannotOpen
from odradek.storage.disk.sync import SyncTicket
from odradek.storage.log.changes import Changes
from odradek.storage.log.contents import Contents, LogHome
from odradek.storage.log.marker_run import MarkerRun
from odradek.storage.log.run import AppendResult, Run, duplicate_of
from odradek.storage.log.validate import checked_batches
from odradek.storage.producers.markers import Marker, TransactionEnd, read_marker
from odradek.storage.producers.saved import SavedProducers
from odradek.storage.producers.verification import Verification
from odradek.storage.segments.damage import DamagedSegment
from odradek.storage.segments.indexes import AbortedTransaction
from odradek.storage.segments.row import SegmentRow, Slice
from odradek.storage.segments.segment import Segment

logger = logging.getLogger(__name__)


class Log:
    __slots__ = (
        "_config",
        "_damages",
        "_health",
        "_rng",
        "_row",
        "_saved",
        "changes",
        "end_offset",
        "is_marked",
        "is_unsaved",
        "leader_epochs",
        "log_start_offset",
        "missing_until",
        "producers",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        config: LogConfig,
        home: LogHome,
        contents: Contents,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        # Records below it are deleted, though some of their bytes may still be there.
        self.log_start_offset = contents.log_start_offset
        self.end_offset = contents.end_offset  # of the next record, and never below `log_start_offset`
        # The log is damaged: records up to here were committed and synced, and some are missing. 0 if it is whole, or
        # as good as whole, because it is in sync with its leader again.
        self.missing_until = contents.missing_until
        self.leader_epochs = contents.leader_epochs
        self.producers = contents.producers  # as of `end_offset`
        self.changes = Changes()
        self.is_marked = False  # as damaged, by a file in its directory (`LogStore.mark_damaged`)
        self.is_unsaved = False  # there is something in memory for `persist_state` to write
        self._config = config
        self._health = Health(topic_partition)
        self._rng = home.rng
        self._damages = home.damages
        self._row = SegmentRow(
            home.files,
            home.directory,
            home.deletions,
            contents.segments,
            contents.end_offset,
            self._health,
            self._damaged,
        )
        self._saved = SavedProducers(contents.producers, contents.snapshots, self._row.durability)

    def __repr__(self) -> str:
        return f"<Log {self.topic_partition} {self.log_start_offset}..{self.end_offset}>"

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self.active.roll_after_ms = self._next_roll_after_ms()
        self._mark_changed()

    @property
    def directory(self) -> str:
        return self._row.directory

    @property
    def segments(self) -> list[Segment]:
        """The segments by base offset, at least one. Only the log changes them."""
        return self._row.segments

    @property
    def active(self) -> Segment:
        """The last segment, which takes the appends."""
        return self._row.active

    @property
    def size_bytes(self) -> int:
        return self._row.size_bytes

    @property
    def synced_offset(self) -> int:
        """All records below are on disk."""
        return self._row.durability.synced_offset

    @property
    def failed(self) -> bool:
        """The state of the disk is unknown: no more appends, for good."""
        return self._health.failed

    @property
    def damage(self) -> DamagedSegment | None:
        """The first damage that readers have found: records there cannot be read, those before it can."""
        return self._row.damage

    @property
    def must_be_copied(self) -> bool:
        """The log is of no use to a follower: with what it appends, it would look as if it had everything."""
        return self.is_marked or self.damage is not None

    def damaged_at(self, file: File, position: int, offset: int, reason: str) -> DamagedSegment:
        """The error for a reader that found damage which the log itself does not look for: it checks no CRCs."""
        return self._row.damaged_at(file, position, offset, reason)

    def _damaged(self, damage: DamagedSegment) -> None:
        logger.error("the log of %s cannot be read to its end: %s", self.topic_partition, damage)
        self._damages.tell(self.topic_partition, damage)

    def _mark_changed(self) -> None:
        self.is_unsaved = True
        self.changes.tell()

    # Appending

    def append_as_leader(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        check_sequence: bool = True,
        verification: Verification | None = None,
        marker: Marker | None = None,
    ) -> AppendResult:
        """Append one validated batch, patched in place. Coordinators send no sequences to check. A client's batch that
        begins a transaction needs a verification. A control batch may come with the marker that is in it."""
        if not self._health.is_sound:
            self._health.mend()
        if header.producer_id >= 0:
            duplicate, marker = self.producers.check_batch(
                batch, header, check_sequence, verification, marker
            )
            if duplicate is not None:
                return duplicate_of(duplicate)
        base_offset = self.end_offset
        patch_placement(batch, base_offset, header.length, leader_epoch)
        self._append(batch, header, base_offset, leader_epoch, marker, now_ms)
        return AppendResult(base_offset, base_offset + header.last_offset_delta, False, header.max_timestamp)

    def append_all_as_leader(
        self, batches: Sequence[tuple[memoryview, BatchHeader]], leader_epoch: int, now_ms: int
    ) -> list[AppendResult | KafkaError]:
        """Append many batches of clients, by one write where they go into one segment; a result for each."""
        if len(batches) > 1 and self._health.is_sound and leader_epoch == self.leader_epochs.persisted_epoch:
            run = Run(batches, self.producers)
            if run.fits_into(self._row.active, self.end_offset, now_ms, self._config.segment_bytes):
                run.place(self.end_offset, leader_epoch)
                if self._append_run(run):
                    return run.results
                run.take_back()
        return [self._try_to_append(batch, header, leader_epoch, now_ms) for batch, header in batches]

    def append_markers_as_leader(
        self, ends: Sequence[TransactionEnd], leader_epoch: int, now_ms: int
    ) -> list[int | KafkaError] | None:
        """Append the markers by one write. The results are those of `MarkerRun`; None if they have to be appended one
        by one.
        """
        if not self._health.is_sound or leader_epoch != self.leader_epochs.persisted_epoch:
            return None
        run = MarkerRun(ends, self.producers)
        if not run.fits_into(self._row.active, self.end_offset, now_ms, self._config.segment_bytes):
            return None
        run.place(self.end_offset, leader_epoch, now_ms)
        if not self._append_run(run):
            return None
        run.replay()
        return run.results

    def append_as_follower(self, batches: Buffer, now_ms: int) -> int:
        """Append a piece of a leader's log: batches with their offsets, never below the end, gaps allowed.

        A last batch that is cut short is left out. Returns the bytes taken. If a write fails, the batches
        before it stay: the end offset says how far the log got.
        """
        if not self._health.is_sound:
            self._health.mend()
        taken = 0
        for header, batch in checked_batches(memoryview(batches), self.end_offset):
            marker = read_marker(batch, header) if header.is_control and header.producer_id >= 0 else None
            self._append(batch, header, header.base_offset, header.leader_epoch, marker, now_ms)
            taken += header.size
        return taken

    def _append(
        self,
        batch: Buffer,
        header: BatchHeader,
        base_offset: int,
        leader_epoch: int,
        marker: Marker | None,
        now_ms: int,
    ) -> None:
        """Put a batch that has its offset and leader epoch into the log; if that fails, none of it is there."""
        last_offset = base_offset + header.last_offset_delta
        if leader_epoch != self.leader_epochs.persisted_epoch:
            self._enter_epoch(leader_epoch, base_offset)
        size, newest, segment_bytes = len(batch), header.max_timestamp, self._config.segment_bytes
        if not self._row.active.has_room(size, last_offset, newest, now_ms, segment_bytes):
            self._make_room(size, base_offset, last_offset, newest, now_ms)
        self._write(batch)
        if marker is not None:
            self._index_aborted(header, base_offset, marker)
        self._row.appended(size, last_offset, newest)
        self._ends_after(last_offset)
        if header.producer_id >= 0:
            self.producers.replay_batch(header, base_offset, marker)

    def _append_run(self, run: Run | MarkerRun) -> bool:
        """Put a run into the active segment. False if it could not be written: none of it is there."""
        try:
            self._write(b"".join(run.placed))
        except KafkaError:
            return False
        if run.stored:
            self._row.appended_all(zip(run.placed, run.stored, strict=True))
            self._ends_after(run.stored[-1].last_offset)
        return True

    def _ends_after(self, last_offset: int) -> None:
        self.end_offset = last_offset + 1
        self.is_unsaved = True
        if not self.changes.is_told:
            self.changes.tell()

    def _try_to_append(
        self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendResult | KafkaError:
        try:
            return self.append_as_leader(batch, header, leader_epoch, now_ms)
        except KafkaError as error:
            return error

    def _enter_epoch(self, epoch: int, start_offset: int) -> None:
        """The first batch of an epoch: the epoch is on disk before the batch is written."""
        self.leader_epochs.assign(epoch, start_offset)
        with self._health.guard("write its leader epochs"):
            self.leader_epochs.persist()

    def _make_room(
        self, size: int, base_offset: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> None:
        """Start a new segment, unless reading the active one shows that the batch fits into it."""
        segment_bytes = self._config.segment_bytes
        if size > segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"A batch of {size} bytes is larger than segment.bytes of {self.topic_partition} allows",
            )
        with self._health.guard("read its newest segment"):
            self.active.load()
        if not self.active.has_room(size, last_offset, max_timestamp, now_ms, segment_bytes):
            self.roll(now_ms, base_offset)

    def _write(self, data: Buffer) -> None:
        """Put bytes after the last batch; if that fails, none of them."""
        segment = self._row.active
        try:
            segment.log.write_at(segment.size, data)
        except OSError as error:
            if not isinstance(error, CannotOpen):
                self._undo_write()
            raise self._health.error("append", error) from error

    def _index_aborted(self, header: BatchHeader, base_offset: int, marker: Marker) -> None:
        aborted = self.producers.aborted_by(header, base_offset, marker)
        if aborted is not None:
            try:
                self._row.index_aborted(aborted)
            except OSError as error:
                self._undo_write()
                raise self._health.error("append", error) from error

    def _undo_write(self) -> None:
        """A write failed, perhaps after a part of it: cut that off now, or before the next append."""
        self._finish_later(self._cut_tail)
        try:
            self._health.finish()
        except KafkaError as error:
            logger.error("%s. It accepts no records until that is done.", error)

    def _cut_tail(self) -> None:
        self._row.cut_tail(self.end_offset)

    def _finish_later(self, *steps: Step) -> None:
        self._health.finish_later(*steps)
        self._mark_changed()

    # Rolling

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Sync the active segment and start a new one: a crash never leaves a hole between them."""
        old = self.active
        base_offset = self.end_offset if base_offset is None else base_offset
        if old.size == 0 and old.base_offset == base_offset:
            return old
        with self._health.guard("start a new segment"):
            self._complete_active(base_offset)
            segment = self._row.begin_segment(base_offset, self._config, now_ms)
        segment.roll_after_ms = self._next_roll_after_ms()
        return segment

    def maybe_roll(self, now_ms: int) -> None:
        """Roll a segment open for `segment.ms` by the clock, however old its records say they are."""
        active = self.active
        if active.size > 0 and now_ms - active.created_ms > active.roll_after_ms and not self.failed:
            self.roll(now_ms)

    def _complete_active(self, offset: int) -> None:
        """Sync all dirty files, and the state of the producers at this offset."""
        if not self._health.is_sound:
            self._health.mend()
        self.active.finish()
        self._saved.save(offset)
        self._row.durability.mark(self.active.files)
        self._row.durability.sync_all_dirty(self.end_offset)

    def _next_roll_after_ms(self) -> int:
        most = min(self._config.segment_jitter_ms, self._config.max_segment_ms)
        return self._config.max_segment_ms - (self._rng.randrange(most) if most > 0 else 0)

    # Reading

    def read(self, offset: int, max_bytes: int, upper_offset: int, minimum_one: bool = True) -> Slice | None:
        """Bytes from the batch with `offset`, up to where the one with `upper_offset` begins.

        At most `max_bytes`, possibly ending within a batch; with `minimum_one` the first batch is whole.
        """
        if not self.log_start_offset <= offset <= self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} has {self.log_start_offset} to {self.end_offset}, not {offset}",
            )
        if offset >= upper_offset or offset == self.end_offset:
            return None
        return self._row.read(offset, upper_offset, self.end_offset, max_bytes, minimum_one)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The end of what a `read_committed` consumer may see."""
        first_unstable = self.producers.first_unstable_offset(high_watermark)
        if first_unstable is None:
            return high_watermark
        return min(high_watermark, max(first_unstable, self.log_start_offset))

    def aborted_transactions(
        self, start: int, end: int, piece: Slice | None = None
    ) -> list[AbortedTransaction]:
        """The aborted transactions that have data or a marker between two offsets, by first offset. With what was read
        from `start` on, few beyond it."""
        return self._row.aborted_transactions(start, end, piece)

    # Durability

    def begin_sync(self) -> SyncTicket | None:
        """A ticket for the dirty files, if there are any and no ticket is out. Always pass it to `complete_sync`."""
        return self._row.durability.begin(self.end_offset)

    def complete_sync(self, ticket: SyncTicket, error: OSError | None) -> None:
        """After an error the state of the disk is unknown: the log has failed."""
        self._row.durability.complete(ticket, error)

    def sync(self) -> None:
        """Sync here and now. No ticket may be out."""
        self._row.durability.sync(self._row.files, self.end_offset)

    @contextmanager
    def held_open(self) -> Iterator[None]:
        """Open the files that an append and its sync need, so that a record is not left between the two for lack of a
        descriptor."""
        with ExitStack() as stack:
            with self._health.guard("open its files"):
                stack.enter_context(pinned(self.active.log, *self._row.durability.dirty))
            yield

    def mark_unsynced(self, files: list[File], synced_offset: int) -> None:
        """These files were created, or read by recovery, which cannot know whether they are on disk."""
        self._row.durability.mark(files)
        self._row.durability.lower_to(synced_offset)

    def persist_state(self) -> None:
        """Write all that is kept in memory to disk: a later start finds everything in place."""
        with self._health.guard("write its state"):
            self._complete_active(self.end_offset)
            self.leader_epochs.persist()
            self._row.sync_names()
        self.is_unsaved = False

    def move(self, directory: str) -> None:
        """The directory was renamed."""
        self._row.move(directory)

    def close(self) -> None:
        """Only close the files; call `persist_state` and `sync` before."""
        self._row.close()

    # Cutting

    def truncate_to(self, offset: int) -> bool:
        """Cut off everything from the batch with this offset on. False if there is nothing."""
        if offset >= self.end_offset:
            self.leader_epochs.truncate_from_end(self.end_offset)
            return False
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        with self._health.guard_change("truncate"):
            offset = self._row.cut(offset)
        self._health.nothing_to_finish()  # whatever was beyond the end was cut off, or removed
        self._ends_at(offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self._row.durability.reached(offset)  # older segments were synced when they were rolled
        self.leader_epochs.truncate_from_end(offset)
        self._finish_later(self.leader_epochs.persist, self._rebuild_producers)
        self._health.finish()
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all data; the next record gets this offset."""
        with self._health.guard("truncate"), self._row.emptied(offset, self._config):
            self._saved.remove_snapshots(lambda _: True)
            self.leader_epochs.clear()
            self.leader_epochs.persist()
        self._health.nothing_to_finish()
        self.producers.clear()
        self._ends_at(offset)
        self.log_start_offset = self._row.durability.synced_offset = offset

    def _rebuild_producers(self) -> None:
        self._saved.rebuild(self.segments, self.end_offset)

    def _ends_at(self, offset: int) -> None:
        self.end_offset = offset
        self._row.durability.lower_to(offset)
        self._mark_changed()

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
            self._mark_changed()
        return self.log_start_offset

    def delete_segments(self, count: int, now_ms: int) -> None:
        """Drop the oldest segments; their files are renamed now and removed later."""
        if count == len(self.segments):
            self.roll(now_ms)
        first_offset = self.segments[count].base_offset
        self.delete_records_before(first_offset)
        with self._health.guard("delete old segments"):
            self._row.drop_oldest(count, now_ms + self._config.file_delete_delay_ms)
            self._saved.remove_snapshots(lambda offset: offset < first_offset)

    def replace_segments(self, old: list[Segment], new: list[Segment], now_ms: int) -> None:
        """Replace segments by compacted ones, which are finished and named `.cleaned`.

        Wherever it is interrupted, opening the log finds all of the old ones or completes the new. `new`
        may be empty only if the log keeps another segment.
        """
        with self._health.guard_change("replace segments"):
            self._row.replace(old, new, now_ms + self._config.file_delete_delay_ms)
        kept = {segment.base_offset for segment in self.segments}
        self._saved.remove_snapshots(lambda offset: offset <= self.active.base_offset and offset not in kept)
