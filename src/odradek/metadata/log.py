"""The metadata log: where the quorum's decisions become bytes on disk, and the bytes an image.

This is the driver of the pure quorum core (`raft/`): it opens `__cluster_metadata-0`, writes what the core
wants written, and folds what the core calls committed into the image.

There are two images. `newest` holds everything appended: the next decision must build on it, or two requests
in flight could both create one topic. `image` holds what is committed, which is all that may be shown or
answered. Between them lies one sync. If that sync fails, nobody knows what a restart would find: the node
must stop.

A start reads the newest snapshot and the log from its end on (`loading.py`). When snapshots are written and how much
of the log is kept below them is decided in `snapshotting.py`.

This log says which topics exist, so a hole in it would make topics vanish. All that no snapshot holds is checked at
every start, and only what a crash can leave is repaired: a torn last batch, which nobody was told of, because every
append is synced before it is answered and before the next one is written. Any other damage stops the start.
The recovery point, in a checkpoint file beside the log, tells a torn batch from a synced one that was damaged
later. It is written by `checkpoint`, every few seconds and at a clean stop: it may lag, but it never leads.
"""

import random
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from odradek.errors import DamagedData
from odradek.metadata.delta import MetadataDelta, apply_records
from odradek.metadata.loading import ADVICE, Base, find_base, load_log
from odradek.metadata.properties import MetaProperties
from odradek.metadata.records import AbortTransactionRecord, MetadataRecord, encode_record
from odradek.metadata.snapshot import Snapshot
from odradek.model import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition
from odradek.raft.core import Append, Appended, Raft, Ready, Synced
from odradek.raft.election import (
    QUORUM_STATE_FILE,
    ElectionState,
    QuorumStateCorrupt,
    decode_election_state,
    encode_election_state,
)
from odradek.records.batch import read_header
from odradek.records.control import ControlType, LeaderChange, Voter, build_control_batch
from odradek.records.record import Record, build_batch
from odradek.storage.checkpoints import RECOVERY_POINTS, read_offsets, write_atomically, write_offsets
from odradek.storage.config import LogConfig
from odradek.storage.deletions import Deletions
from odradek.storage.files import Files
from odradek.storage.log import Log
from odradek.storage.recovery import Opening, create_log, open_log
from odradek.storage.retention import delete_old_segments
from odradek.storage.sync import SyncTicket
from odradek.wire.codec import encode
from odradek.wire.messages import leader_change_message

METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)


class _Pending(NamedTuple):
    """An append that is not committed yet."""

    last_offset: int
    delta: MetadataDelta


class MetadataLog:
    def __init__(
        self, files: Files, log: Log, raft: Raft, base: Base, deletions: Deletions, recovery_point: int = 0
    ) -> None:
        """Use `open`."""
        self._files = files
        self._log = log
        self._raft = raft
        self._pending: deque[_Pending] = deque()
        self._recovery_point = recovery_point  # as it is on disk
        self.snapshots = base.files
        self.deletions = deletions  # of segments and snapshots that are not needed any more
        self.image = self.newest = base.snapshot.image
        # KRAFT_VERSION and KRAFT_VOTERS, which a snapshot must hold as well: whoever appends one puts it here.
        self.control: dict[ControlType, bytes] = dict(base.snapshot.control)

    @classmethod
    def open(
        cls, files: Files, directory: str, properties: MetaProperties, log_config: LogConfig, now_ms: int
    ) -> "MetadataLog":
        """Open or create the log in a data directory, lead its quorum, and read it into the image."""
        recovery_point = _read_recovery_point(files, directory)
        base = find_base(files, f"{directory}/{METADATA_PARTITION}", properties.cluster_id)
        deletions = Deletions()
        log = _open_or_create(files, directory, log_config, base, recovery_point, now_ms, deletions)
        base.check_end(log)
        voter = Voter(properties.node_id, properties.directory_id)
        election = _read_election(files, log.directory)
        last_epoch = max(log.leader_epochs.latest, base.snapshot.image.epoch)
        raft = Raft(voter, (voter,), election, log.end_offset, last_epoch)
        metadata_log = cls(files, log, raft, base, deletions, recovery_point)
        metadata_log._drive(raft.tick(), now_ms)
        metadata_log._load(now_ms)
        base.set_damaged_aside()
        return metadata_log

    @property
    def epoch(self) -> int:
        return self._raft.epoch

    @property
    def leader_id(self) -> int | None:
        return self._raft.leader_id

    @property
    def high_watermark(self) -> int:
        """All below is committed."""
        return self._raft.high_watermark

    @property
    def end_offset(self) -> int:
        """Where the next record will lie."""
        return self._log.end_offset

    @property
    def directory(self) -> str:
        return self._log.directory

    def append(self, records: Sequence[MetadataRecord], now_ms: int) -> int:
        """Write these together, and apply them to `newest`; the last one's offset. Committed by a later sync."""
        last_offset = self.end_offset + len(records) - 1
        newest, delta = apply_records(self.newest, records, last_offset, self.epoch, now_ms)
        self._drive(self._raft.propose([encode_record(record) for record in records]), now_ms)
        assert self.end_offset == last_offset + 1
        self.newest = newest
        self._pending.append(_Pending(last_offset, delta))
        return last_offset

    def begin_sync(self) -> SyncTicket | None:
        """What must be synced, perhaps by a thread, before anything more is committed."""
        return self._log.begin_sync()

    def complete_sync(self, ticket: SyncTicket, error: OSError | None) -> list[MetadataDelta]:
        """What is committed by it: each append's delta, in their order, with `image` at the last."""
        self._log.complete_sync(ticket, error)
        return self._publish()

    def commit(self, records: Sequence[MetadataRecord], now_ms: int) -> list[MetadataDelta]:
        """Append and sync here and now. If that raises, `newest` tells whether the records are appended."""
        with self._log.held_open():
            self.append(records, now_ms)
            return self.settle()

    def settle(self) -> list[MetadataDelta]:
        """Sync what is appended, and commit it."""
        self._log.sync()
        return self._publish()

    def checkpoint(self) -> None:
        """Write down how far the log is synced, if that changed."""
        point = self._log.synced_offset
        if point > self._recovery_point:
            write_offsets(self._files, f"{self.directory}/{RECOVERY_POINTS}", {METADATA_PARTITION: point})
            self._recovery_point = point

    # Below a snapshot

    @property
    def start_offset(self) -> int:
        """What was before is in a snapshot alone."""
        return self._log.log_start_offset

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    @property
    def first_timestamp_ms(self) -> int:
        """When the oldest record that the log still has was written, or a little later."""
        segment = self._log.segments[0]
        segment.load()
        return segment.first_timestamp if segment.first_timestamp >= 0 else segment.created_ms

    def size_from(self, offset: int) -> int:
        """Bytes of the segments that hold anything from this offset on."""
        segments = self._log.segments
        ends = [*(segment.base_offset for segment in segments[1:]), self.end_offset]
        return sum(segment.size for segment, end in zip(segments, ends, strict=True) if end > offset)

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, so that all before it can be deleted as a whole. What is in the log is synced."""
        self._log.roll(now_ms)

    def delete_before(self, offset: int, now_ms: int) -> None:
        """Let the log start here, and delete the segments that end before. A snapshot must hold what they say."""
        assert offset <= self.snapshots.end_offset, "what no snapshot holds is never deleted"
        self._log.delete_records_before(offset)
        delete_old_segments(self._log, now_ms, self.high_watermark)

    @property
    def file_delete_delay_ms(self) -> int:
        return self._log.config.file_delete_delay_ms

    @property
    def synced_offset(self) -> int:
        return self._log.synced_offset

    @property
    def failed(self) -> bool:
        """Nobody knows what a restart would find: nothing more can be appended or committed."""
        return self._log.failed

    def close(self) -> None:
        if not self.failed:
            self._log.persist_state()
            self._log.sync()
            self.checkpoint()
        self._log.close()

    def _publish(self) -> list[MetadataDelta]:
        self._raft.step(Synced(self._log.synced_offset))
        committed = []
        while self._pending and self._pending[0].last_offset < self.high_watermark:
            delta = self._pending.popleft().delta
            self.image = delta.after
            committed.append(delta)
        return committed

    def _drive(self, ready: Ready, now_ms: int) -> None:
        """Do what the quorum wants done, in its order."""
        if ready.election is not None:
            path = f"{self.directory}/{QUORUM_STATE_FILE}"
            write_atomically(self._files, path, encode_election_state(ready.election))
        if ready.append is not None:
            batch = _build_batch(ready.append, self.end_offset, now_ms)
            self._log.append_as_leader(batch, read_header(batch), ready.append.epoch, now_ms)
            self._raft.step(Appended(self.end_offset))

    def _load(self, now_ms: int) -> None:
        """Everything that is in the log is committed with the record that opened this epoch."""
        self._log.sync()
        self._raft.step(Synced(self._log.synced_offset))
        base = Snapshot(self.image, tuple(self.control.items()))
        self.image, self.control, in_transaction = load_log(self._log, base, self.epoch, now_ms)
        self.newest = self.image
        if in_transaction:
            self.commit([AbortTransactionRecord("its writer is gone")], now_ms)


def _read_recovery_point(files: Files, directory: str) -> int:
    offsets = read_offsets(files, f"{directory}/{METADATA_PARTITION}/{RECOVERY_POINTS}")
    return offsets.get(METADATA_PARTITION, 0)


def _open_or_create(
    files: Files,
    directory: str,
    config: LogConfig,
    base: Base,
    recovery_point: int,
    now_ms: int,
    deletions: Deletions,
) -> Log:
    path = f"{directory}/{METADATA_PARTITION}"
    rng = random.Random(0)  # there is no jitter here
    if any(entry.name == str(METADATA_PARTITION) for entry in files.list(directory)):
        opening = Opening(
            clean=False, recovery_point=recovery_point, strict=True, needed_from=base.end_offset
        )
        try:
            return open_log(
                files, path, METADATA_PARTITION, METADATA_TOPIC_ID, config, opening, now_ms, rng, deletions
            )
        except DamagedData as error:
            raise DamagedData(f"{base.complaint}{error}. {ADVICE.format(directory=path)}") from error
    log = create_log(files, path, METADATA_PARTITION, METADATA_TOPIC_ID, config, now_ms, rng, deletions)
    log.sync()
    return log


def _read_election(files: Files, directory: str) -> ElectionState | None:
    path = f"{directory}/{QUORUM_STATE_FILE}"
    try:
        return decode_election_state(files.read(path))
    except FileNotFoundError:
        return None
    except QuorumStateCorrupt as error:
        raise QuorumStateCorrupt(
            f"{path} cannot be trusted: {error}. Restore it from a backup. The only voter of a cluster may "
            "remove it instead: the log knows the last epoch, too"
        ) from error


def _build_batch(append: Append, base_offset: int, now_ms: int) -> bytearray:
    if append.leader_change is not None:
        return build_control_batch(
            ControlType.LEADER_CHANGE,
            _encode_leader_change(append.leader_change),
            timestamp=now_ms,
            base_offset=base_offset,
            leader_epoch=append.epoch,
        )
    records = [Record(base_offset + delta, now_ms, None, value) for delta, value in enumerate(append.records)]
    return build_batch(records, leader_epoch=append.epoch)


def _encode_leader_change(change: LeaderChange) -> bytes:
    """Version 0, without directory ids: Kafka writes this one alone, and reads no other."""
    message = leader_change_message.LeaderChangeMessage(
        version=0,
        leader_id=change.leader_id,
        voters=[leader_change_message.Voter(voter.node_id) for voter in change.voters],
        granting_voters=[leader_change_message.Voter(voter.node_id) for voter in change.granting_voters],
    )
    return bytes(encode(message, 0))
