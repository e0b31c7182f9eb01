"""The metadata log: where the controller's decisions become records, and committed records an image.

The quorum (`raft/`) orders the records: its driver writes them and says what is committed. This module turns metadata
records into bytes and back, and folds what is committed into the image.

There are two images. `newest` holds everything appended: the next decision must build on it, or two requests
in flight could both create one topic. `image` holds what is committed, which is all that may be shown or
answered. Between them lies one sync. If that sync fails, nobody knows what a restart would find: the node
must stop.

A start reads the newest snapshot and the log from its end on (`loading.py`). When snapshots are written, and how much
of the log is kept below them, is decided in `snapshotting.py`.
"""

import random
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from odradek.metadata.delta import MetadataDelta, apply_records
from odradek.metadata.loading import Base, find_base, load_log
from odradek.metadata.properties import MetaProperties
from odradek.metadata.records import AbortTransactionRecord, MetadataRecord, encode_record
from odradek.metadata.snapshot import ControlRecords
from odradek.raft.control import encode_control
from odradek.raft.core import Raft
from odradek.raft.driver import Driver
from odradek.raft.messages import Message, OffsetAndEpoch
from odradek.raft.store import QuorumStore
from odradek.raft.voters import KRaftVersion, ReplicaKey, VoterSet
from odradek.storage.config import LogConfig
from odradek.storage.disk.deletions import Deletions
from odradek.storage.disk.files import Files
from odradek.storage.disk.sync import SyncTicket
from odradek.storage.log.retention import delete_old_segments


class _Pending(NamedTuple):
    """An append that is not committed yet."""

    last_offset: int
    delta: MetadataDelta


class MetadataLog:
    def __init__(self, quorum: Driver, store: QuorumStore, base: Base, now_ms: int) -> None:
        """Use `open`."""
        self._now_ms = now_ms  # when anything was last appended: syncs have no time of their own
        self._quorum = quorum
        self._store = store
        self._pending: deque[_Pending] = deque()
        self.snapshots = base.files
        self.image = self.newest = base.snapshot.image

    @classmethod
    def open(
        cls, files: Files, directory: str, properties: MetaProperties, log_config: LogConfig, now_ms: int
    ) -> "MetadataLog":
        """Open or create the log in a data directory, lead its quorum, and read it into the image."""
        base = find_base(files, directory, properties.cluster_id)
        store = base.open_store(files, directory, log_config, now_ms)
        node = ReplicaKey(properties.node_id, properties.directory_id)
        raft = Raft(
            node,
            properties.cluster_id,
            store.view(VoterSet.of(node), base.snapshot_id, base.quorum_changes),
            store.load_election(),
            rng=random.Random(node.directory_id.int),  # so that no two replicas draw the same timeouts
            now_ms=now_ms,
        )
        metadata_log = cls(Driver(raft, store, _no_peers), store, base, now_ms)
        metadata_log._load(now_ms)
        base.set_damaged_aside()
        return metadata_log

    @property
    def epoch(self) -> int:
        return self._quorum.raft.epoch

    @property
    def leader_id(self) -> int | None:
        return self._quorum.raft.leader_id

    @property
    def high_watermark(self) -> int:
        """All below is committed."""
        return self._quorum.high_watermark

    @property
    def end_offset(self) -> int:
        """Where the next record will lie."""
        return self._quorum.raft.log.end_offset

    @property
    def directory(self) -> str:
        return self._store.directory

    def append(self, records: Sequence[MetadataRecord], now_ms: int) -> int:
        """Write these together, and apply them to `newest`; the last one's offset. Committed by a later sync."""
        last_offset = self.end_offset + len(records) - 1
        newest, delta = apply_records(self.newest, records, last_offset, self.epoch, now_ms)
        self._now_ms = now_ms
        appended = self._quorum.propose([encode_record(record) for record in records], now_ms)
        assert appended == last_offset
        self.newest = newest
        self._pending.append(_Pending(last_offset, delta))
        return last_offset

    def begin_sync(self) -> SyncTicket | None:
        """What must be synced, perhaps by a thread, before anything more is committed."""
        return self._quorum.begin_sync()

    def complete_sync(self, ticket: SyncTicket, error: OSError | None) -> list[MetadataDelta]:
        """What is committed by it: each append's delta, in their order, with `image` at the last."""
        self._quorum.complete_sync(ticket, error, self._now_ms)
        return self._publish()

    def commit(self, records: Sequence[MetadataRecord], now_ms: int) -> list[MetadataDelta]:
        """Append and sync here and now. If that raises, `newest` tells whether the records are appended."""
        with self._store.held_open():
            self.append(records, now_ms)
            return self.settle()

    def settle(self) -> list[MetadataDelta]:
        """Sync what is appended, and commit it."""
        self._quorum.sync(self._now_ms)
        return self._publish()

    def checkpoint(self) -> None:
        """Write down how far the log is synced, if that changed."""
        self._store.checkpoint()

    # Below a snapshot

    @property
    def start_offset(self) -> int:
        """What was before is in a snapshot alone."""
        return self._store.log.log_start_offset

    @property
    def synced_offset(self) -> int:
        return self._store.synced_offset

    @property
    def size_bytes(self) -> int:
        return self._store.log.size_bytes

    @property
    def first_timestamp_ms(self) -> int:
        """When the oldest record that the log still has was written, or a little later."""
        segment = self._store.log.segments[0]
        segment.load()
        return segment.first_timestamp if segment.first_timestamp >= 0 else segment.created_ms

    @property
    def deletions(self) -> Deletions:
        """Of segments and snapshots that are not needed any more."""
        return self._store.deletions

    @property
    def file_delete_delay_ms(self) -> int:
        return self._store.log.config.file_delete_delay_ms

    def size_from(self, offset: int) -> int:
        """Bytes of the segments that hold anything from this offset on."""
        segments = self._store.log.segments
        ends = [*(segment.base_offset for segment in segments[1:]), self.end_offset]
        return sum(segment.size for segment, end in zip(segments, ends, strict=True) if end > offset)

    def control_before(self, offset: int) -> ControlRecords:
        """What the records below this offset say of the quorum: nothing before kraft.version 1."""
        voters, level = self._quorum.raft.log.voters.before(offset)
        return (encode_control(KRaftVersion(level)), encode_control(voters)) if level else ()

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, so that all before it can be deleted as a whole. What is in the log is synced."""
        self._store.log.roll(now_ms)

    def snapshot_added(self, now_ms: int) -> None:
        """Let the quorum know of the newest snapshot, and of where the log starts."""
        self._quorum.log_start_moved(self.start_offset, OffsetAndEpoch(*self.snapshots.ids[-1]), now_ms)

    def delete_before(self, offset: int, now_ms: int) -> None:
        """Let the log start here, and delete the segments that end before. A snapshot must hold what they say."""
        assert offset <= self.snapshots.end_offset, "what no snapshot holds is never deleted"
        self._store.log.delete_records_before(offset)
        self.snapshot_added(now_ms)
        delete_old_segments(self._store.log, now_ms, self.high_watermark)

    @property
    def failed(self) -> bool:
        """Nobody knows what a restart would find: nothing more can be appended or committed."""
        return self._store.failed or self._quorum.failed

    def close(self) -> None:
        self._store.close()

    def _publish(self) -> list[MetadataDelta]:
        committed = []
        while self._pending and self._pending[0].last_offset < self.high_watermark:
            delta = self._pending.popleft().delta
            self.image = delta.after
            committed.append(delta)
        return committed

    def _load(self, now_ms: int) -> None:
        """Everything that is in the log is committed with the record that opens this epoch."""
        self._quorum.tick(now_ms)
        self._quorum.sync(now_ms)
        self.image, in_transaction = load_log(self._store, self.image, self.epoch, now_ms)
        self.newest = self.image
        if in_transaction:
            self.commit([AbortTransactionRecord("its writer is gone")], now_ms)


def _no_peers(message: Message) -> None:
    raise AssertionError(f"an only voter has nobody to talk to: {message}")
