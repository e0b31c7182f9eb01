"""The driver of the quorum core: does what each `Ready` asks for, in its order, and leaves none unread.

The core decides, the store writes, the host carries messages and syncs. Nothing here knows the protocol. Whatever the
core wants done in answer to a report (`Appended`, `Synced`) is done before a call returns, so nobody ever sees the core
ahead of its log.

A sync may take a thread's time. `begin_sync` hands out what must be synced and `complete_sync` takes it back, as with
any log; until then a leader does not count its own records, and a follower does not fetch on.

If the quorum-state or a truncation cannot be written, the core is ahead of its disk: `failed`, and the node must stop.
A record that cannot be appended (a full disk) was never there, and the next one may succeed.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from odradek.errors import KafkaError
from odradek.raft.core import Raft
from odradek.raft.election import ElectionState
from odradek.raft.log_view import Batch
from odradek.raft.messages import FetchResponse, Message, OffsetAndEpoch, ReadFrom
from odradek.raft.ready import (
    Append,
    Appended,
    AppendFailed,
    AppendFetched,
    Event,
    LogStartMoved,
    QuorumBroken,
    Ready,
    Synced,
)
from odradek.raft.reconfiguration import VoterChange
from odradek.storage.disk.sync import SyncTicket

logger = logging.getLogger(__name__)


class Store(Protocol):
    """Where quorum-state and log are kept. `QuorumStore` is the one on disk."""

    @property
    def synced_offset(self) -> int: ...

    def save_election(self, election: ElectionState) -> None: ...

    def truncate_to(self, offset: int) -> None: ...

    def append(self, append: Append, now_ms: int) -> tuple[Batch, ...]: ...

    def append_fetched(self, fetched: AppendFetched, now_ms: int) -> tuple[Batch, ...]: ...

    def read(self, offset: int, max_bytes: int) -> bytes: ...

    def begin_sync(self) -> SyncTicket | None: ...

    def complete_sync(self, ticket: SyncTicket, error: OSError | None) -> None: ...

    def sync(self) -> None: ...


class Driver:
    def __init__(self, raft: Raft, store: Store, send: Callable[[Message], None]) -> None:
        """`send` takes a message along, or loses it; it does not raise."""
        self.raft = raft
        self.high_watermark = raft.high_watermark  # everything below is committed, and may be applied
        self.wants_sync = False  # something appended waits to be synced
        self.failed = False
        self._store = store
        self._send = send

    def tick(self, now_ms: int) -> None:
        self._perform(self.raft.tick(now_ms), now_ms)

    def step(self, message: Message, now_ms: int) -> None:
        try:
            ready = self.raft.step(message, now_ms)
        except QuorumBroken:
            self.failed = True
            raise
        self._perform(ready, now_ms)

    def propose(self, records: Sequence[bytes], now_ms: int) -> int:
        """Append these as one batch; the offset of the last. Committed once the high watermark is above it."""
        self._perform(self.raft.propose(records, now_ms), now_ms)
        return self.raft.log.end_offset - 1

    def propose_voters(self, change: VoterChange, now_ms: int) -> int:
        """Append the voters after this change; the offset of that record."""
        self._perform(self.raft.propose_voters(change, now_ms), now_ms)
        return self.raft.log.end_offset - 1

    def log_start_moved(self, start_offset: int, snapshot_id: OffsetAndEpoch, now_ms: int) -> None:
        """The log starts here, and this is the newest snapshot."""
        self._perform(self.raft.step(LogStartMoved(start_offset, snapshot_id), now_ms), now_ms)

    def stop(self, now_ms: int) -> None:
        """Hand over, if this replica leads; the node may stop once `raft.may_stop`, or when it is tired of waiting."""
        self._perform(self.raft.stop(now_ms), now_ms)

    def begin_sync(self) -> SyncTicket | None:
        """What must be synced, perhaps by a thread. The ticket always goes to `complete_sync`."""
        return self._store.begin_sync()

    def complete_sync(self, ticket: SyncTicket, error: OSError | None, now_ms: int) -> None:
        self._store.complete_sync(ticket, error)
        self._report_synced(now_ms)

    def sync(self, now_ms: int) -> None:
        """Sync here and now."""
        self._store.sync()
        self._report_synced(now_ms)

    def _report_synced(self, now_ms: int) -> None:
        self._perform(self.raft.step(Synced(self._store.synced_offset), now_ms), now_ms)
        self.wants_sync = not self.raft.log.is_synced

    def _perform(self, ready: Ready, now_ms: int) -> None:
        """Do what the core wants done, in its order."""
        self._write(ready)
        event: Event | None = None
        failure: KafkaError | None = None
        if ready.append is not None:
            try:
                event = Appended(self._append(ready.append, now_ms))
            except KafkaError as error:
                event, failure = AppendFailed(), error
        self.wants_sync = self.wants_sync or ready.sync
        for message in ready.messages:
            self._send_filled(message)
        if ready.high_watermark is not None:
            self.high_watermark = ready.high_watermark
        if event is not None:
            self._perform(self.raft.step(event, now_ms), now_ms)
        if failure is not None:
            raise failure

    def _write(self, ready: Ready) -> None:
        try:
            if ready.election is not None:
                self._store.save_election(ready.election)
            if ready.truncate_to is not None:
                self._store.truncate_to(ready.truncate_to)
        except (KafkaError, OSError):
            self.failed = True
            raise

    def _append(self, append: Append | AppendFetched, now_ms: int) -> tuple[Batch, ...]:
        if isinstance(append, Append):
            return self._store.append(append, now_ms)
        return self._store.append_fetched(append, now_ms)

    def _send_filled(self, message: Message) -> None:
        """With the records that the core only named."""
        body = message.body
        if isinstance(body, FetchResponse) and isinstance(body.records, ReadFrom):
            try:
                message = message._replace(body=body._replace(records=self._store.read(*body.records)))
            except (KafkaError, OSError) as error:
                logger.warning(
                    "cannot read the metadata log from offset %d on for replica %d, which will ask again: %s",
                    body.records.offset,
                    message.receiver,
                    error,
                )
                return
        self._send(message)
