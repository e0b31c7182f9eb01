"""The metadata log: it turns the controller's decisions into records, and committed records into an image.

The quorum (`raft/`) orders the records: its driver writes them and says what is committed. This module encodes and
decodes metadata records, and applies what is committed to the image. Every node has one: a voter, or an observer that
only follows.

There are two images. `image` has everything committed, and nothing else may be shown or used in a response. `newest`
has everything appended: the next decision must build on it, or two requests in flight could both create one topic. They
differ only on the active controller, which is the leader of the quorum once it has applied everything from before its
epoch. A record moves from `newest` to `image` when a majority of the voters has synced it. A leader that is deposed
forgets `newest`: the log will show whether its last records are committed after all. If a sync fails, what a restart
would find is unknown: the node must stop.

A start reads the newest snapshot, and the part of the log that is known to be committed (`loading.py`). For the only
voter that is the whole log; others learn it from their leader. A replica that has fallen behind the start of the
leader's log gets a snapshot (`snapshot_exchange.py`). `snapshotting.py` decides when snapshots are written, and how
much of the log is kept below them.
"""

import logging
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import NamedTuple
from uuid import UUID

from odradek.errors import DamagedData, ErrorCode, KafkaError
from odradek.metadata.damage import advice
from odradek.metadata.delta import MetadataDelta, apply_records, difference
from odradek.metadata.loading import Base, CommittedReader, find_base
from odradek.metadata.properties import MetaProperties
from odradek.metadata.records import AbortTransactionRecord, MetadataRecord, encode_record
from odradek.metadata.snapshot import ControlRecords
from odradek.metadata.snapshot_exchange import SnapshotExchange
from odradek.raft.control import encode_control
from odradek.raft.core import Raft
from odradek.raft.driver import Driver
from odradek.raft.messages import Message, OffsetAndEpoch
from odradek.raft.outgoing import Settings
from odradek.raft.ready import Unreachable
from odradek.raft.reconfiguration import VoterChange
from odradek.raft.roles import Leader
from odradek.raft.store import DamagedLog, QuorumStore
from odradek.raft.voters import Endpoint, KRaftVersion, ReplicaKey, VoterNode, VoterSet
from odradek.storage.config import LogConfig
from odradek.storage.disk.deletions import Deletions
from odradek.storage.disk.files import Files
from odradek.storage.disk.sync import SyncTicket
from odradek.storage.log.retention import delete_old_segments

logger = logging.getLogger(__name__)


def _no_peers(message: Message) -> None:
    raise AssertionError(f"an only voter has nobody to talk to: {message}")


class Membership(NamedTuple):
    """This node's place in the quorum."""

    is_alone: bool = True  # if the log names no voters, this node is the only one
    endpoints: tuple[Endpoint, ...] = ()  # of its own controller listeners
    bootstrap: tuple[int, ...] = ()  # servers to ask for the leader, as ids below -1
    settings: Settings = Settings()
    kraft_version: int = 0  # to which a leader upgrades the log
    send: Callable[[Message], None] = _no_peers

    @contextmanager
    def advising(self, files: Files, directory: str, properties: MetaProperties) -> Iterator[None]:
        """Tell whoever meets a damaged log what a node in this place can do."""
        try:
            yield
        except DamagedLog as error:
            what = advice(files, directory, properties, not self.is_alone, bool(self.endpoints))
            raise DamagedData(f"{error}. {what}") from error


ALONE = Membership()


class _Pending(NamedTuple):
    """An append that is not committed yet."""

    last_offset: int
    delta: MetadataDelta


class MetadataLog:
    def __init__(
        self,
        quorum: Driver,
        store: QuorumStore,
        base: Base,
        exchange: SnapshotExchange,
        advising: Callable[[], AbstractContextManager[None]],
        now_ms: int,
    ) -> None:
        """Use `open`."""
        self._advising = advising  # see `Membership`
        self._now_ms = now_ms  # of the last event; syncs use it too
        self._quorum = quorum
        self._store = store
        self._exchange = exchange
        self._pending: deque[_Pending] = deque()
        self._reader = CommittedReader(store)
        self._active_epoch = -1  # in which this node became the active controller
        self.snapshots = base.files
        self.image = self.newest = base.snapshot.image
        # The topics that committed records have removed, until somebody takes them.
        self._removed_topic_ids: set[UUID] | None = set()

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        properties: MetaProperties,
        log_config: LogConfig,
        now_ms: int,
        membership: Membership = ALONE,
    ) -> "MetadataLog":
        """Open or create the log in a data directory, and apply what is known to be committed. The only voter leads at
        once, and its whole log is committed."""
        advising = partial(membership.advising, files, directory, properties)
        with advising():
            base = find_base(files, directory, properties.cluster_id)
            store = base.open_store(files, directory, log_config, now_ms)
        node = ReplicaKey(properties.node_id, properties.directory_id)
        has_history = store.log.end_offset > 0  # written by this node alone, if the log names no voters
        is_voter = membership.is_alone or has_history
        static_voters = VoterSet([VoterNode(node, membership.endpoints)] if is_voter else [])
        exchange = SnapshotExchange(base.files, store, properties.cluster_id)
        raft = Raft(
            node,
            properties.cluster_id,
            store.view(static_voters, base.snapshot_id, base.quorum_changes),
            store.load_election(),
            rng=random.Random(node.directory_id.int),  # so that no two replicas draw the same timeouts
            now_ms=now_ms,
            settings=membership.settings,
            kraft_version=membership.kraft_version,
            bootstrap=membership.bootstrap,
        )
        driver = Driver(raft, store, membership.send, exchange)
        metadata_log = cls(driver, store, base, exchange, advising, now_ms)
        if raft.is_only_voter:
            level = raft.log.voters.kraft_version
            metadata_log._lead_alone(now_ms)
            if has_history and raft.log.voters.kraft_version > level:
                logger.info(
                    "upgraded %s from kraft.version %d to kraft.version %d: its log now contains the voters",
                    metadata_log.directory,
                    level,
                    raft.log.voters.kraft_version,
                )
        base.set_damaged_aside()
        return metadata_log

    def _lead_alone(self, now_ms: int) -> None:
        """The record that opens this epoch commits everything in the log."""
        self._quorum.tick(now_ms)
        self._quorum.sync(now_ms)
        self.publish()
        if self.newest is not self.image:
            self.settle()

    # State

    @property
    def raft(self) -> Raft:
        """The core, for reading only: events go through this log."""
        return self._quorum.raft

    @property
    def epoch(self) -> int:
        return self._quorum.raft.epoch

    @property
    def leader_id(self) -> int | None:
        return self._quorum.raft.leader_id

    @property
    def is_only_voter(self) -> bool:
        return self._quorum.raft.is_only_voter

    @property
    def is_active(self) -> bool:
        """This node is the active controller: it leads, and has applied everything from before its epoch."""
        return self._quorum.raft.is_leader and self._active_epoch == self.epoch

    @property
    def high_watermark(self) -> int:
        """Everything below is committed."""
        return self._quorum.high_watermark

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._quorum.raft.log.end_offset

    @property
    def directory(self) -> str:
        return self._store.directory

    # Events. After each of them, `publish` returns what it committed.

    def tick(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._quorum.tick(now_ms)

    def step(self, message: Message, now_ms: int) -> None:
        self._now_ms = now_ms
        self._quorum.step(message, now_ms)

    def unreachable(self, peer: Unreachable, now_ms: int) -> None:
        self._now_ms = now_ms
        self._quorum.report(peer, now_ms)

    def change_voters(self, change: VoterChange, now_ms: int) -> int:
        """Append the voter set after this change. Returns the offset of that record. `newest` counts it too: broker
        epochs are offsets, so the next decision must know its own offset."""
        self._now_ms = now_ms
        offset = self._quorum.propose_voters(change, now_ms)
        if self.is_active:
            self.newest, delta = apply_records(self.newest, (), offset, self.epoch, now_ms)
            self._pending.append(_Pending(offset, delta))
        return offset

    def resign(self, now_ms: int) -> None:
        """Hand over the leadership, if this node leads, and do not stand for election again."""
        self._now_ms = now_ms
        self._quorum.stop(now_ms)

    def append(self, records: Sequence[MetadataRecord], now_ms: int) -> int:
        """Append these as one batch, and apply them to `newest`. Returns the offset of the last."""
        if not self.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")
        last_offset = self.end_offset + len(records) - 1
        newest, delta = apply_records(self.newest, records, last_offset, self.epoch, now_ms)
        self._now_ms = now_ms
        appended = self._quorum.propose([encode_record(record) for record in records], now_ms)
        assert appended == last_offset
        self.newest = newest
        self._pending.append(_Pending(last_offset, delta))
        return last_offset

    # Syncing

    @property
    def wants_sync(self) -> bool:
        return self._quorum.wants_sync

    def begin_sync(self) -> SyncTicket | None:
        """Return what must be synced, perhaps in a thread, before anything more is committed."""
        return self._quorum.begin_sync()

    def complete_sync(self, ticket: SyncTicket, error: OSError | None) -> list[MetadataDelta]:
        """Returns what that committed."""
        self._quorum.complete_sync(ticket, error, self._now_ms)
        return self.publish()

    def commit(self, records: Sequence[MetadataRecord], now_ms: int) -> list[MetadataDelta]:
        """Append and sync in place, which commits on the only voter. If it raises, `newest` shows whether the records
        are appended."""
        with self._store.held_open():
            self.append(records, now_ms)
            return self.settle()

    def settle(self) -> list[MetadataDelta]:
        """Sync in place what is appended. Returns what that committed."""
        self._quorum.sync(self._now_ms)
        return self.publish()

    def checkpoint(self) -> None:
        """Record how far the log is synced, if that changed."""
        self._store.checkpoint()

    # Committing

    def publish(self) -> list[MetadataDelta]:
        """Apply what is committed to `image`. Returns the changes, in order. A new leader becomes the active controller
        once the record that opens its epoch is applied."""
        committed = []
        installed = self._exchange.take_installed()
        if installed is not None:
            self._reader.start_over()
            committed.append(difference(self.image, installed))
            self.image = installed
        if not self.is_active:
            self._pending.clear()
        while self._pending and self._pending[0].last_offset < self.high_watermark:
            delta = self._pending.popleft().delta
            self.image = delta.after
            committed.append(delta)
        if self.image.offset + 1 < self.high_watermark:
            with self._advising():
                read = self._reader.read(self.image, self.high_watermark)
            self.image = read.after
            committed.append(read)
        if not self._pending:
            self.newest = self.image
        if self._removed_topic_ids is not None:
            self._removed_topic_ids.update(*(delta.removed_topic_ids for delta in committed))
        self._maybe_become_active()
        return committed

    def take_removed_topic_ids(self) -> frozenset[UUID]:
        """The topics that were removed since the snapshot that this start began with, as the committed records say.
        Later ones are in the deltas alone."""
        removed, self._removed_topic_ids = self._removed_topic_ids, None
        return frozenset(removed or ())

    def _maybe_become_active(self) -> None:
        role = self._quorum.raft.role
        if not isinstance(role, Leader) or self._active_epoch == role.epoch:
            return
        if self.image.offset >= role.epoch_start_offset:
            self._active_epoch = role.epoch
            self.newest = self.image
            if self._reader.in_transaction:
                self.append([AbortTransactionRecord("its writer is gone")], self._now_ms)

    # Snapshots

    @property
    def start_offset(self) -> int:
        """Everything below is only in a snapshot."""
        return self._store.log.log_start_offset

    @property
    def synced_offset(self) -> int:
        return self._store.synced_offset

    @property
    def size_bytes(self) -> int:
        return self._store.log.size_bytes

    @property
    def first_timestamp_ms(self) -> int:
        """The time when the oldest record of the log was written, or a little later."""
        segment = self._store.log.segments[0]
        segment.load()
        return segment.first_timestamp if segment.first_timestamp >= 0 else segment.created_ms

    @property
    def deletions(self) -> Deletions:
        """The deletions of segments and snapshots that are no longer needed."""
        return self._store.deletions

    @property
    def file_delete_delay_ms(self) -> int:
        return self._store.log.config.file_delete_delay_ms

    def size_from(self, offset: int) -> int:
        """The size of the segments that have records from this offset on."""
        segments = self._store.log.segments
        ends = [*(segment.base_offset for segment in segments[1:]), self.end_offset]
        return sum(segment.size for segment, end in zip(segments, ends, strict=True) if end > offset)

    def control_before(self, offset: int) -> ControlRecords:
        """The kraft.version and the voters as of this offset; nothing before kraft.version 1."""
        voters, level = self._quorum.raft.log.voters.before(offset)
        return (encode_control(KRaftVersion(level)), encode_control(voters)) if level else ()

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, so that everything before it can be deleted as a whole. This also syncs the log."""
        self._store.log.roll(now_ms)

    def snapshot_added(self, now_ms: int) -> None:
        """Tell the quorum about the newest snapshot, and where the log starts."""
        self._quorum.log_start_moved(self.start_offset, OffsetAndEpoch(*self.snapshots.ids[-1]), now_ms)

    def delete_before(self, offset: int, now_ms: int) -> None:
        """Move the log start here, and delete the segments before it. A snapshot must have their records."""
        assert offset <= self.snapshots.end_offset, "what no snapshot holds is never deleted"
        self._store.log.delete_records_before(offset)
        self.snapshot_added(now_ms)
        delete_old_segments(self._store.log, now_ms, self.high_watermark)

    @property
    def failed(self) -> bool:
        """True if nobody knows what a restart would find: nothing more can be appended or committed."""
        return self._store.failed or self._quorum.failed

    def close(self) -> None:
        self._store.close()
