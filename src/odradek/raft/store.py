"""The quorum's data on disk: the log `__cluster_metadata-0`, and the file quorum-state beside it.

This log says which topics exist, so a hole in it would make topics vanish. Every start checks all records that are not
in a snapshot, and repairs only what a crash can cause: a torn end, which was not synced, so it was never acknowledged.
Any other damage stops the start. Two files beside the log tell a torn batch from a synced one that was damaged later;
what they say may lag behind the synced offset, but is never above it. The file synced-offset follows every sync, but
is not synced itself: a killed process leaves it exact, a power cut may take it back (`synced_offset.py`). The recovery
point is synced: `checkpoint` writes it every few seconds and at a clean stop, and a sync does so after many bytes. So a
replica that was killed knows at its next start everything that it told its leader it had. After a power cut it may
lack the last seconds of that knowledge: then damage there looks like a torn end.

What a start finds is synced before it counts, directory entries first: the last process may have been killed between
writing and syncing, or its sync may have failed.

A disk may write pages in any order. Of several batches that are written without a sync between them (by a leader that
appends while its disk is busy, or a follower that fetches many), a crash may keep a later one and lose an earlier one.
Before the second batch of such a run is written, the file unsynced-run records where the run begins; otherwise a hole
before an intact batch would count as damage. The run ends where the log is known to be synced, whatever the file says;
the next `checkpoint` that finds everything synced removes it.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import chain

from odradek.errors import DamagedData, ErrorCode, KafkaError
from odradek.model import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition
from odradek.raft.control import LeaderChange, build_control_records, read_control_records
from odradek.raft.election import (
    QUORUM_STATE_FILE,
    ElectionState,
    QuorumStateCorrupt,
    decode_election_state,
    encode_election_state,
)
from odradek.raft.log_view import Batch, LogView
from odradek.raft.messages import OffsetAndEpoch
from odradek.raft.ready import Append, AppendFetched
from odradek.raft.synced_offset import SyncedOffset
from odradek.raft.voters import Change, VoterHistory, VoterSet
from odradek.records.batch import BatchHeader, Buffer, read_header
from odradek.records.record import Record, build_batch
from odradek.records.walk import whole_batches
from odradek.storage.config import LogConfig
from odradek.storage.disk.checkpoints import RECOVERY_POINTS, read_offsets, write_offsets, write_with_spare
from odradek.storage.disk.deletions import Deletions
from odradek.storage.disk.files import DirectoryEntry, Files
from odradek.storage.disk.sync import SyncTicket
from odradek.storage.log.contents import LogHome
from odradek.storage.log.log import Log
from odradek.storage.log.opening import create_log, open_log
from odradek.storage.log.reading import read_batches
from odradek.storage.log.recovery import Opening
from odradek.storage.segments.damage import Damages
from odradek.storage.segments.segment import LOG_SUFFIX

METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)
UNSYNCED_RUN_FILE = "unsynced-run"
READ_BYTES = 4 << 20
CHECKPOINT_BYTES = 1 << 20  # after so many since the recovery point was written, a sync writes it


class DamagedLog(DamagedData):
    """The metadata log cannot be trusted. `metadata.damage` adds to the message what an operator can do."""


class QuorumStore:
    def __init__(
        self,
        files: Files,
        log: Log,
        synced: SyncedOffset,
        recovery_point: int,
        unsynced_run: int | None,
        deletions: Deletions,
    ) -> None:
        """Use `open`."""
        self._files = files
        self._synced = synced
        self._unsynced_run = unsynced_run  # as it is on disk
        self.deletions = deletions  # of segments that a snapshot replaced; run by the snapshotter
        self._recovery_point = recovery_point  # as it is on disk, or larger
        self._is_recorded = True  # it is on disk like that
        self._bytes_since = 0  # appended since the recovery point was written
        self.log = log

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        config: LogConfig,
        now_ms: int,
        needed_from: int = 0,
    ) -> "QuorumStore":
        """Open or create the log in a data directory. Everything below `needed_from` is in a snapshot; a log without
        segments begins there."""
        path = f"{directory}/{METADATA_PARTITION}"
        recovery_point = read_offsets(files, f"{path}/{RECOVERY_POINTS}").get(METADATA_PARTITION, 0)
        unsynced_run = read_offsets(files, f"{path}/{UNSYNCED_RUN_FILE}").get(METADATA_PARTITION)
        synced = SyncedOffset(files, path)
        is_empty = not any(entry.name.endswith(LOG_SUFFIX) for entry in _entries(files, path))
        opening = Opening(
            clean=False,
            recovery_point=max(recovery_point, synced.offset),
            log_start_offset=needed_from if is_empty else 0,
            strict=True,
            needed_from=needed_from,
            unsynced_run=unsynced_run,
        )
        deletions = Deletions()
        log = _open_or_create(files, directory, config, opening, now_ms, deletions)
        return cls(files, log, synced, recovery_point, unsynced_run, deletions)

    @property
    def directory(self) -> str:
        return self.log.directory

    @property
    def synced_offset(self) -> int:
        return self.log.synced_offset

    @property
    def failed(self) -> bool:
        """True once nothing more can be appended or committed: nobody knows what a restart would find."""
        return self.log.failed

    # What the core must know at a start

    def view(
        self,
        static_voters: VoterSet,
        snapshot_id: OffsetAndEpoch | None = None,
        snapshot_changes: Sequence[Change] = (),
    ) -> LogView:
        """The log as the core sees it, from the newest snapshot on. `static_voters` are valid if neither the snapshot
        (`snapshot_changes`) nor the log names voters. Without `snapshot_id`, the changes are what the directory was
        formatted with, and get offsets before the log's."""
        voters = VoterHistory(static_voters)
        start_offset = self.log.log_start_offset if snapshot_id is None else snapshot_id.offset
        for offset, change in enumerate(snapshot_changes, start_offset - len(snapshot_changes)):
            voters.add(offset, change)
        for header, data in self.read_from(start_offset):
            for offset, change in _changes(header, data):
                voters.add(offset, change)
        return LogView(
            voters,
            start_offset=self.log.log_start_offset,
            end_offset=self.log.end_offset,
            synced_offset=self.log.synced_offset,
            epochs=self.log.leader_epochs.entries,
            snapshot_id=snapshot_id,
        )

    def load_election(self) -> ElectionState | None:
        path = f"{self.directory}/{QUORUM_STATE_FILE}"
        try:
            return decode_election_state(self._files.read(path))
        except FileNotFoundError:
            return None
        except QuorumStateCorrupt as error:
            raise QuorumStateCorrupt(
                f"{path} cannot be trusted: {error}. Restore it from a backup. The only voter of a cluster may "
                "remove it instead, because the log also has the last epoch. Any other voter would forget whom it has "
                "voted for: remove its vote, and let the node join again with an empty directory (docs/CLUSTER.md, "
                "'A metadata log is damaged')"
            ) from error

    # For the driver

    def save_election(self, election: ElectionState) -> None:
        path = f"{self.directory}/{QUORUM_STATE_FILE}"
        write_with_spare(self._files, path, encode_election_state(election))

    def truncate_to(self, offset: int) -> None:
        """Lower the synced offset first: at a start, records missing below it would look like damage."""
        self._lower_to(offset)
        self.log.truncate_to(offset)
        self._note_synced()

    def start_at(self, offset: int) -> None:
        """Drop all records, and continue at the end of a snapshot, which is on disk. If a crash interrupts this,
        `catch_up_with` completes it. What is known to be synced goes back first, as when the log is truncated."""
        self._lower_to(0)
        self.log.truncate_fully_and_start_at(offset)

    def catch_up_with(self, snapshot_id: OffsetAndEpoch) -> None:
        """At a start, with the newest snapshot: it replaces the log if a leader sent it for that purpose.

        A leader sends one if the log ends before the snapshot, or in an older epoch: then the log may be longer, but it
        has diverged. A snapshot of this log itself is never ahead of it.

        A crash may have emptied the log and left its epochs: with them it would end in an epoch that is too old."""
        end_offset, epoch = snapshot_id
        log = self.log
        is_done = log.log_start_offset == log.end_offset == end_offset and not log.leader_epochs.entries
        if log.end_offset < end_offset or (not is_done and log.leader_epochs.latest < epoch):
            self.start_at(end_offset)

    def append(self, append: Append, now_ms: int) -> tuple[Batch, ...]:
        data = _build_batch(append, self.log.end_offset, now_ms)
        header = read_header(data)
        self._note_run(1)
        self.log.append_as_leader(data, header, append.epoch, now_ms)
        self._bytes_since += header.size
        return (_describe(read_header(data), data),)

    def append_fetched(self, fetched: AppendFetched, now_ms: int) -> tuple[Batch, ...]:
        """Returns the batches that were appended: if the disk fills up on the way, those before that."""
        # An epoch whose first batch did not fit on the disk has begun, but not in this log.
        self.log.leader_epochs.truncate_from_end(self.log.end_offset)
        batches = list(_plausible(fetched, self.log.end_offset, self.log.leader_epochs.latest))
        if not batches:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, "The leader's response contains no batch that continues the log."
            )
        self._note_run(len(batches))
        size = sum(header.size for header, _ in batches)
        self._bytes_since += size
        before = self.log.end_offset
        try:
            self.log.append_as_follower(memoryview(fetched.records)[:size], now_ms)
        except KafkaError:
            if self.log.end_offset == before:
                raise
        return tuple(
            _describe(header, data) for header, data in batches if header.next_offset <= self.log.end_offset
        )

    def _note_run(self, batches: int) -> None:
        """Record where unsynced batches begin if there will be more than one."""
        start = self.log.synced_offset
        if batches == 1 and start == self.log.end_offset:
            return
        if self._unsynced_run is None or self._unsynced_run > start:
            try:
                write_offsets(
                    self._files, f"{self.directory}/{UNSYNCED_RUN_FILE}", {METADATA_PARTITION: start}
                )
            except OSError as error:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"Cannot append to {METADATA_PARTITION}: {error}"
                ) from error
            self._unsynced_run = start

    def read(self, offset: int, max_bytes: int) -> bytes:
        """At least one batch."""
        piece = self.log.read(offset, max_bytes, self.log.end_offset)
        assert piece is not None, "the core names records that are in the log"
        return bytes(piece.file.read_at(piece.position, piece.length))

    def read_from(self, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        return chain.from_iterable(read_batches(self.log, READ_BYTES, offset))

    def begin_sync(self) -> SyncTicket | None:
        return self.log.begin_sync()

    def complete_sync(self, ticket: SyncTicket, error: OSError | None) -> None:
        self.log.complete_sync(ticket, error)
        self._note_synced()

    def sync(self) -> None:
        self.log.sync()
        self._note_synced()

    def _note_synced(self) -> None:
        """Called before anybody is told of a sync."""
        self._synced.advance(self.log.synced_offset)
        if self._bytes_since >= CHECKPOINT_BYTES:
            with suppress(OSError):  # the next one tries again
                self.checkpoint()

    def held_open(self) -> AbstractContextManager[None]:
        """Keep open what an append and its sync need."""
        return self.log.held_open()

    def checkpoint(self) -> None:
        """Record how far the log is synced, if that changed."""
        if self.log.synced_offset > self._recovery_point or not self._is_recorded:
            self._write_recovery_point(self.log.synced_offset)
        if self._unsynced_run is not None and self.log.synced_offset == self.log.end_offset:
            with suppress(FileNotFoundError):
                self._files.remove(f"{self.directory}/{UNSYNCED_RUN_FILE}")
            self._unsynced_run = None

    def _lower_to(self, offset: int) -> None:
        if offset < self._recovery_point:
            self._write_recovery_point(offset)
        self._synced.lower(offset)

    def _write_recovery_point(self, offset: int) -> None:
        self._recovery_point = max(self._recovery_point, offset)  # if the write fails, either may be on disk
        self._is_recorded = False
        write_offsets(self._files, f"{self.directory}/{RECOVERY_POINTS}", {METADATA_PARTITION: offset})
        self._recovery_point, self._is_recorded = offset, True
        self._bytes_since = 0

    def close(self) -> None:
        if not self.failed:
            self.log.persist_state()
            self.sync()
            self.checkpoint()
        self._synced.close()
        self.log.close()


def _entries(files: Files, directory: str) -> list[DirectoryEntry]:
    return list(files.list(directory)) if files.exists(directory) else []


def _open_or_create(
    files: Files, directory: str, config: LogConfig, opening: Opening, now_ms: int, deletions: Deletions
) -> Log:
    path = f"{directory}/{METADATA_PARTITION}"
    rng = random.Random(0)  # only for jitter, which this log does not use
    home = LogHome(files, path, deletions, rng, Damages())
    if any(entry.name == str(METADATA_PARTITION) for entry in files.list(directory)):
        for names in (path, directory):  # includes the quorum-state, on which votes depend from here on
            files.sync_directory(names)
        try:
            return open_log(home, METADATA_PARTITION, METADATA_TOPIC_ID, config, opening, now_ms)
        except DamagedData as error:
            raise DamagedLog(str(error)) from error
    log = create_log(home, METADATA_PARTITION, METADATA_TOPIC_ID, config, now_ms)
    log.sync()
    return log


def _build_batch(append: Append, base_offset: int, now_ms: int) -> bytearray:
    if append.control:
        return build_control_records(
            append.control, timestamp=now_ms, base_offset=base_offset, leader_epoch=append.epoch
        )
    records = [Record(base_offset + delta, now_ms, None, value) for delta, value in enumerate(append.records)]
    return build_batch(records, leader_epoch=append.epoch)


def _describe(header: BatchHeader, data: Buffer) -> Batch:
    return Batch(header.base_offset, header.next_offset, header.leader_epoch, tuple(_changes(header, data)))


def _changes(header: BatchHeader, data: Buffer) -> Iterator[tuple[int, Change]]:
    if header.is_control:
        for offset, record in read_control_records(data, header):
            if not isinstance(record, LeaderChange):
                yield offset, record


def _plausible(
    fetched: AppendFetched, end_offset: int, epoch: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The whole batches that continue the log without a gap, in rising epochs up to the leader's."""
    for header, data in whole_batches(memoryview(fetched.records)):
        if header.base_offset != end_offset or not epoch <= header.leader_epoch <= fetched.epoch:
            return
        end_offset, epoch = header.next_offset, header.leader_epoch
        yield header, data
