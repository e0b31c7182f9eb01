"""The driver of the quorum core: it carries out every `Ready`, in order.

The core decides, the store writes, the host carries messages and syncs. Nothing here knows the protocol. What the core
wants done in response to a report (`Appended`, `Synced`) is done before a call returns, so no caller ever sees the core
ahead of its log.

A sync may run in a thread. `begin_sync` returns what must be synced, and `complete_sync` takes the result, as with any
log; until then a leader does not count its own records, and a follower does not fetch.

If the quorum-state or a truncation cannot be written, the core is ahead of its disk: the driver has `failed`, and the
node must stop. A record that cannot be appended (on a full disk) leaves no trace, and the next one may succeed.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from odradek.errors import ErrorCode, KafkaError
from odradek.raft.core import Raft
from odradek.raft.election import ElectionState
from odradek.raft.log_view import Batch
from odradek.raft.messages import (
    FetchResponse,
    FetchSnapshotResponse,
    Message,
    OffsetAndEpoch,
    ReadFrom,
    ReadSnapshot,
)
from odradek.raft.ready import (
    Append,
    Appended,
    AppendFailed,
    AppendFetched,
    Event,
    LogStartMoved,
    QuorumBroken,
    Ready,
    SnapshotInstalled,
    SnapshotPart,
    SnapshotWritten,
    Synced,
    Unreachable,
)
from odradek.raft.reconfiguration import VoterChange
from odradek.raft.voters import VoterHistory
from odradek.storage.disk.sync import SyncTicket

logger = logging.getLogger(__name__)


class Store(Protocol):
    """Keeps the quorum-state and the log. `QuorumStore` keeps them on disk."""

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


class Snapshots(Protocol):
    """Keeps snapshots of the log. A replica without peers needs none."""

    def read(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes]:
        """Returns the snapshot's size, and some of its bytes. Raises KafkaError: SNAPSHOT_NOT_FOUND or
        POSITION_OUT_OF_RANGE."""
        ...

    def write(self, part: SnapshotPart) -> None: ...

    def install(self, snapshot_id: OffsetAndEpoch) -> VoterHistory:
        """All parts are written: sync the snapshot, then empty the log and let it start at the snapshot's end."""
        ...


class Driver:
    def __init__(
        self,
        raft: Raft,
        store: Store,
        send: Callable[[Message], None],
        snapshots: Snapshots | None = None,
    ) -> None:
        """`send` sends a message or loses it; it does not raise."""
        self._snapshots = snapshots
        self.raft = raft
        self.high_watermark = raft.high_watermark  # everything below is committed, and may be applied
        self.wants_sync = not raft.log.is_synced  # what was appended, or found at the start, must be synced
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

    def report(self, event: Unreachable, now_ms: int) -> None:
        self._perform(self.raft.step(event, now_ms), now_ms)

    def propose(self, records: Sequence[bytes], now_ms: int) -> int:
        """Append these as one batch. Returns the offset of the last: committed once the high watermark is above it."""
        self._perform(self.raft.propose(records, now_ms), now_ms)
        return self.raft.log.end_offset - 1

    def propose_voters(self, change: VoterChange, now_ms: int) -> int:
        """Append the voter set after this change. Returns the offset of that record."""
        self._perform(self.raft.propose_voters(change, now_ms), now_ms)
        return self.raft.log.end_offset - 1

    def log_start_moved(self, start_offset: int, snapshot_id: OffsetAndEpoch, now_ms: int) -> None:
        """The log now starts here; the newest snapshot, which this is, has everything before."""
        self._perform(self.raft.step(LogStartMoved(start_offset, snapshot_id), now_ms), now_ms)

    def stop(self, now_ms: int) -> None:
        """Hand over the leadership, if this replica leads. The node may stop once `raft.may_stop`."""
        self._perform(self.raft.stop(now_ms), now_ms)

    def begin_sync(self) -> SyncTicket | None:
        """Returns what must be synced, perhaps in a thread. Pass every ticket to `complete_sync`."""
        return self._store.begin_sync()

    def complete_sync(self, ticket: SyncTicket, error: OSError | None, now_ms: int) -> None:
        self._store.complete_sync(ticket, error)
        self._report_synced(now_ms)

    def sync(self, now_ms: int) -> None:
        """Sync in place."""
        self._store.sync()
        self._report_synced(now_ms)

    def _report_synced(self, now_ms: int) -> None:
        self._perform(self.raft.step(Synced(self._store.synced_offset), now_ms), now_ms)
        self.wants_sync = not self.raft.log.is_synced

    def _perform(self, ready: Ready, now_ms: int) -> None:
        """Carry out what the core decided, in order."""
        self._write(ready)
        event: Event | None = None
        if ready.truncate_to is not None:  # truncating also syncs what is left
            event = Synced(self._store.synced_offset)
        failure: KafkaError | None = None
        try:
            if ready.snapshot is not None:
                event = self._write_snapshot(ready.snapshot)
            elif ready.append is not None:
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

    def _write_snapshot(self, part: SnapshotPart) -> SnapshotWritten | SnapshotInstalled:
        assert self._snapshots is not None, "a replica with peers keeps snapshots"
        self._snapshots.write(part)
        if not part.is_last:
            return SnapshotWritten(part.snapshot_id, part.position + len(part.data))
        try:
            return SnapshotInstalled(part.snapshot_id, self._snapshots.install(part.snapshot_id))
        except (KafkaError, OSError):
            self.failed = True
            raise

    def _append(self, append: Append | AppendFetched, now_ms: int) -> tuple[Batch, ...]:
        if isinstance(append, Append):
            return self._store.append(append, now_ms)
        return self._store.append_fetched(append, now_ms)

    def _send_filled(self, message: Message) -> None:
        """Send a message with the bytes that the core only named. If they cannot be read, the replica asks again."""
        body = message.body
        try:
            if isinstance(body, FetchResponse) and isinstance(body.records, ReadFrom):
                message = message._replace(body=body._replace(records=self._store.read(*body.records)))
            elif isinstance(body, FetchSnapshotResponse) and isinstance(body.data, ReadSnapshot):
                message = message._replace(body=self._filled_with_snapshot(body, *body.data))
        except (KafkaError, OSError) as error:
            logger.warning("cannot read the metadata that replica %d asked for: %s", message.receiver, error)
            return
        self._send(message)

    def _filled_with_snapshot(
        self, body: FetchSnapshotResponse, position: int, max_bytes: int
    ) -> FetchSnapshotResponse:
        if self._snapshots is None:
            return body._replace(error=ErrorCode.SNAPSHOT_NOT_FOUND, data=b"")
        try:
            size, data = self._snapshots.read(body.snapshot_id, position, max_bytes)
        except KafkaError as error:
            return body._replace(error=error.code, data=b"")
        return body._replace(size=size, data=data)
