"""The metadata log: where the controller's decisions become records, and committed records an image.

The quorum (`raft/`) orders the records: its driver writes them and says what is committed. This module turns metadata
records into bytes and back, and folds what is committed into the image.

There are two images. `newest` holds everything appended: the next decision must build on it, or two requests
in flight could both create one topic. `image` holds what is committed, which is all that may be shown or
answered. Between them lies one sync. If that sync fails, nobody knows what a restart would find: the node
must stop.

There are no snapshots yet: the log is kept whole and read at every start (10,000 topics in about half a
second).
"""

import random
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from odradek.metadata.delta import MetadataDelta, apply_records
from odradek.metadata.image import MetadataImage
from odradek.metadata.properties import MetaProperties
from odradek.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    decode_record,
    encode_record,
)
from odradek.raft.core import Raft
from odradek.raft.driver import Driver
from odradek.raft.messages import Message
from odradek.raft.store import QuorumStore
from odradek.raft.voters import ReplicaKey, VoterSet
from odradek.records.record import decode_batch
from odradek.storage.config import LogConfig
from odradek.storage.files import Files
from odradek.storage.sync import SyncTicket


class _Pending(NamedTuple):
    """An append that is not committed yet."""

    last_offset: int
    delta: MetadataDelta


class MetadataLog:
    def __init__(self, quorum: Driver, store: QuorumStore, image: MetadataImage, now_ms: int) -> None:
        """Use `open`."""
        self._now_ms = now_ms  # when anything was last appended: syncs have no time of their own
        self._quorum = quorum
        self._store = store
        self._pending: deque[_Pending] = deque()
        self.image = image
        self.newest = image

    @classmethod
    def open(
        cls, files: Files, directory: str, properties: MetaProperties, log_config: LogConfig, now_ms: int
    ) -> "MetadataLog":
        """Open or create the log in a data directory, lead its quorum, and read it into the image."""
        store = QuorumStore.open(files, directory, log_config, now_ms)
        node = ReplicaKey(properties.node_id, properties.directory_id)
        raft = Raft(
            node,
            properties.cluster_id,
            store.view(VoterSet.of(node)),
            store.load_election(),
            rng=random.Random(node.directory_id.int),  # so that no two replicas draw the same timeouts
            now_ms=now_ms,
        )
        image = MetadataImage(properties.cluster_id)
        metadata_log = cls(Driver(raft, store, _no_peers), store, image, now_ms)
        metadata_log._load(now_ms)
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
        return self._quorum.raft.high_watermark

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
        newest, delta = apply_records(self.newest, records, last_offset, self.epoch)
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
        reader = _TransactionReader()
        records = [record for item in _read_records(self._store) for record in reader.read(item)]
        self.image, _ = apply_records(self.image, records, self.end_offset - 1, self.epoch)
        self.newest = self.image
        if reader.is_open:
            self.commit([AbortTransactionRecord("its writer is gone")], now_ms)


def _no_peers(message: Message) -> None:
    raise AssertionError(f"an only voter has nobody to talk to: {message}")


class _TransactionReader:
    """Holds back the records of a transaction until it ends. We write none, but Kafka does."""

    def __init__(self) -> None:
        self._held: list[MetadataRecord] | None = None

    @property
    def is_open(self) -> bool:
        return self._held is not None

    def read(self, record: MetadataRecord) -> list[MetadataRecord]:
        """What counts now that this record was read."""
        if isinstance(record, BeginTransactionRecord):
            self._held = []
        elif isinstance(record, EndTransactionRecord):
            released, self._held = self._held or [], None
            return released
        elif isinstance(record, AbortTransactionRecord):
            self._held = None
        elif self._held is None:
            return [record]
        else:
            self._held.append(record)
        return []


def _read_records(store: QuorumStore) -> Iterator[MetadataRecord]:
    for header, batch in store.read_from(store.log.log_start_offset):
        if not header.is_control:
            for record in decode_batch(batch, header):
                assert record.value is not None, "a metadata record has a value"
                yield decode_record(record.value)
