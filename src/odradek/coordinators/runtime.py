"""The runtime under every coordinator: one shard for each partition of an internal topic.

A coordinator is a state machine whose state is its partition's log. The rules that make it safe are here,
once for groups and for other coordinators:

* A handler *decides*: it reads state and returns a `Decision` (records, responses, effects). It does not touch durable
  state. Only `replay` does, and loading the log is the same replay.
* A decision's records are appended in one batch, all or nothing, before the next event is handled.
* A response is sent, and an effect is carried out, once everything it was decided on is committed. Records are
  replayed as soon as they are appended, so that the next request sees them; its response then waits for them, whether
  it writes or reads.
* Nothing needs to be rolled back. A failed append has changed nothing durable (`undo` reverts what a
  handler had to note in memory). Records that were appended but not committed can only be lost together with the
  leadership, and then the shard is discarded and loaded again: no snapshots are kept.

An effect is something that a coordinator cannot do itself, such as writing markers to other partitions. It is data, and
each kind of coordinator has its own. The coordinator is told what became of it, as an event (`Runner.tell`). Effects
are lost with the leadership: the next coordinator, once it is loaded, asks for what its state still needs.

A shard does nothing on its own: `runner.Runner` gives it events and carries out what is `Ready`. A token stands for a
request: it comes back exactly once, with the response, maybe after another member's event. `next_deadline_ms` says
when to call `tick` next: an idle coordinator costs nothing.

A decision may be part of a producer's transaction: then its batch carries the producer's id and epoch, and its
records take effect once a marker, a separate control batch, has ended that transaction. Both are replayed in order, by
the coordinator that wrote them and by the one that loads them.

Timers are memory, not state: handlers and replay set them directly, a new leader sets them again in
`loaded`, and an action must check the state again when it fires.
"""

from __future__ import annotations

import enum
import heapq
import itertools
import logging
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from odradek.errors import ErrorCode, KafkaError
from odradek.model import Caller
from odradek.storage.producers.markers import Marker

Token = Callable[[Any], None]  # the runner calls it with the response; coordinators only keep it
Response = tuple[Token, Any]
StateRecord = tuple[Any, Any | None]
EncodedRecord = tuple[bytes, bytes | None]
Effect = Any  # what there is depends on the kind of coordinator
Action = Callable[[int], "Decision | None"]


class Note(NamedTuple):
    """An event of a group, for the log: written once the decision is appended, and not if that fails."""

    key: str
    text: str
    level: int = logging.INFO
    noun: str = "group"  # what the key names


class Producer(NamedTuple):
    """The producer whose transaction a batch belongs to."""

    id: int
    epoch: int


class StateBatch(NamedTuple):
    """A unit of appending and reading back: records, or the marker that ends a producer's transaction."""

    records: list[EncodedRecord]
    producer: Producer | None = None
    marker: Marker | None = None
    # These matter only when it is appended:
    is_verified: bool = False  # the producer's transaction is open, says its coordinator
    transaction_version: int = 0  # by whose rules the marker is checked


@dataclass(slots=True)
class Decision:
    """A handler's decision: records for the log, and once those are committed, responses to send and effects to carry
    out.

    With a `producer` the records belong to its transaction; the first of them must be verified. A `marker` ends that
    transaction, by the rules of a `transaction_version`; it replaces records.

    `undo` runs if the append fails. The responses, and the request's own, then carry an error instead, and
    `undo` must make sure that nothing else responds to them.
    """

    records: list[StateRecord] = field(default_factory=list)
    responses: list[Response] = field(default_factory=list)
    undo: Callable[[], None] | None = None
    producer: Producer | None = None
    marker: Marker | None = None
    is_verified: bool = False
    transaction_version: int = 0
    notes: list[Note] = field(default_factory=list)
    effects: Sequence[Effect] = ()

    def note(self, key: str, text: str, level: int = logging.INFO, noun: str = "group") -> None:
        self.notes.append(Note(key, text, level, noun))


@dataclass(slots=True)
class Ready:
    """The runner's work now: append the batch and tell the shard, write the notes, send the responses, and carry out
    the effects."""

    batch: StateBatch | None = None
    notes: Sequence[Note] = ()
    responses: Sequence[Response] = ()
    effects: Sequence[Effect] = ()


class Timers:
    """Deadlines by key, in one heap. Moving a deadline later, as every heartbeat does, costs no heap work:
    the entry is moved when it comes up."""

    def __init__(self) -> None:
        self._timers: dict[Hashable, tuple[int, Action]] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._queued: dict[Hashable, int] = {}  # deadline of the one valid heap entry
        self._order = itertools.count()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._timers

    def __len__(self) -> int:
        return len(self._timers)

    def schedule(self, key: Hashable, deadline_ms: int, action: Action) -> None:
        """Run `action` at the deadline, instead of any action scheduled under the key."""
        self._timers[key] = (deadline_ms, action)
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def postpone(self, key: Hashable, deadline_ms: int) -> None:
        """Move a timer, if it exists, keeping its action."""
        timer = self._timers.get(key)
        if timer is not None:
            self.schedule(key, deadline_ms, timer[1])

    def cancel(self, key: Hashable) -> None:
        self._timers.pop(key, None)
        if len(self._heap) > 64 + 2 * len(self._timers):
            self._rebuild()

    def next_deadline_ms(self) -> int | None:
        """Return when to look again; never later than the earliest deadline."""
        return self._heap[0][0] if self._heap else None

    def pop(self, now_ms: int) -> Action | None:
        """Remove an action that is due, earliest first."""
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != queued_ms:
                continue  # an earlier entry took its place
            del self._queued[key]
            timer = self._timers.get(key)
            if timer is None:
                continue  # cancelled
            if timer[0] > now_ms:
                self._push(key, timer[0])
                continue
            del self._timers[key]
            return timer[1]
        return None

    def _push(self, key: Hashable, deadline_ms: int) -> None:
        self._queued[key] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, next(self._order), key))

    def _rebuild(self) -> None:
        """Drop entries of cancelled timers, so that the heap stays in proportion to the live ones."""
        self._heap.clear()
        self._queued.clear()
        for key, (deadline_ms, _) in self._timers.items():
            self._push(key, deadline_ms)


class Coordinator(Protocol):
    """The state machine that a shard runs."""

    timers: Timers
    noun: str  # for what a key names, in the log

    def handle(self, request: Any, version: int, caller: Caller, token: Token, now_ms: int) -> Decision:
        """Decide. May leave the token without a response: a later decision must give it.

        A refusal of the whole request may also be raised, as a KafkaError, before anything was noted.
        """

    def refuse(self, request: Any, code: ErrorCode) -> Any:
        """The response with `code` in all places for error codes."""

    def encode(self, key: Any, value: Any | None) -> EncodedRecord: ...

    def decode(self, key: bytes, value: bytes | None) -> StateRecord | None:
        """None for a record that this coordinator does not know: it is skipped."""

    def replay(self, key: Any, value: Any | None, producer: Producer | None = None) -> None:
        """Apply one record to the state. Total: a record that fits nothing is ignored, never an error.

        With a producer it is part of a transaction that may still be aborted."""

    def replay_marker(self, producer: Producer, marker: Marker) -> None:
        """The producer's transaction has ended. Total, like `replay`."""

    def loaded(self, now_ms: int) -> None:
        """The whole log has been replayed: set the timers that its state asks for."""

    def __len__(self) -> int:
        """The number of keys (groups, transactional ids) that it knows."""


class ShardState(enum.Enum):
    LOADING = "loading"
    ACTIVE = "active"
    RESIGNED = "resigned"


# Append errors as a client of the coordinator sees them; any other is UNKNOWN_SERVER_ERROR.
APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    # These are about transactions, and their clients understand them.
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE: ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
}


class Shard:
    """One partition's coordinator: loads it, runs it, and holds back its responses and effects until what they follow
    from is committed."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.state = ShardState.LOADING
        self._requests: dict[Token, Any] = {}  # every request without a response
        self._pending: deque[tuple[int, list[Decision]]] = deque()  # by their last offset, ascending
        self._appending: Decision | None = None  # the one decision whose batch is being appended
        self._appending_for: Token | None = None  # the request that it decided on

    # --- loading, and giving up ---

    def replay(self, batch: StateBatch) -> None:
        """One batch of the log, in order, while loading."""
        assert self.state is ShardState.LOADING
        decode, replay, producer = self.coordinator.decode, self.coordinator.replay, batch.producer
        for key, value in batch.records:
            record = decode(key, value)
            if record is not None:
                replay(*record, producer)
        if batch.marker is not None and producer is not None:
            self.coordinator.replay_marker(producer, batch.marker)

    def loaded(self, now_ms: int, last_uncommitted: int | None = None) -> None:
        """The log's end was reached. Its last record may not be committed yet: then responses wait for it."""
        assert self.state is ShardState.LOADING
        self.state = ShardState.ACTIVE
        if last_uncommitted is not None:
            self._pending.append((last_uncommitted, []))
        self.coordinator.loaded(now_ms)

    def resigned(self) -> list[Response]:
        """The partition's leadership is lost. Every open request is refused; the shard must not be used any more."""
        self.state = ShardState.RESIGNED
        refused = [
            (token, self.coordinator.refuse(request, ErrorCode.NOT_COORDINATOR))
            for token, request in self._requests.items()
        ]
        self._requests.clear()
        self._pending.clear()
        self._appending = None
        return refused

    # --- events ---

    def handle(self, request: Any, version: int, caller: Caller, token: Token, now_ms: int) -> Ready:
        if self.state is not ShardState.ACTIVE:
            return Ready(responses=[(token, self.coordinator.refuse(request, self._refusal()))])
        assert token not in self._requests, "a token names one open request"
        self._requests[token] = request
        try:
            decision = self._decide(request, version, caller, token, now_ms)
            self._appending_for = token
            return self._ready(decision)
        except Exception:
            self._requests.pop(token, None)  # the shard continues; the caller responds
            raise

    def _decide(self, request: Any, version: int, caller: Caller, token: Token, now_ms: int) -> Decision:
        try:
            return self.coordinator.handle(request, version, caller, token, now_ms)
        except KafkaError as error:
            return Decision(responses=[(token, self.coordinator.refuse(request, error.code))])

    def decided(self, decision: Decision) -> Ready:
        """The coordinator has decided on an event that is no request."""
        self._appending_for = None
        return self._ready(decision)

    def tick(self, now_ms: int) -> Ready | None:
        """Fire one timer. Call it again until it returns None: each may append its own batch."""
        if self.state is not ShardState.ACTIVE:
            return None
        while (action := self.coordinator.timers.pop(now_ms)) is not None:
            decision = action(now_ms)
            if decision is not None:
                return self.decided(decision)
        return None

    def next_deadline_ms(self) -> int | None:
        return self.coordinator.timers.next_deadline_ms() if self.state is ShardState.ACTIVE else None

    # --- results of appends ---

    def appended(self, last_offset: int) -> None:
        """The batch is in the log, its last record at this offset."""
        decision = self._take_appending()
        self._pending.append((last_offset, [decision]))
        for key, value in decision.records:
            self.coordinator.replay(key, value, decision.producer)
        if decision.marker is not None and decision.producer is not None:
            self.coordinator.replay_marker(decision.producer, decision.marker)

    def append_failed(self, code: ErrorCode) -> list[Response]:
        """The batch is not in the log, nor a part of it.

        All requests that would have got a response are refused, and the request itself, even if it was to wait.
        """
        decision = self._take_appending()
        if decision.undo is not None:
            decision.undo()
        tokens = dict.fromkeys(token for token, _ in decision.responses)
        if self._appending_for is not None:
            tokens[self._appending_for] = None
        seen_by_client = APPEND_ERRORS.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)
        return self._release(
            [(token, self.coordinator.refuse(self._requests[token], seen_by_client)) for token in tokens]
        )

    def committed(self, high_watermark: int) -> Ready:
        """Everything below the high watermark is committed: what waited for it is ready."""
        responses: list[Response] = []
        effects: list[Effect] = []
        while self._pending and self._pending[0][0] < high_watermark:
            for decision in self._pending.popleft()[1]:
                responses += self._release(decision.responses)
                effects += decision.effects
        return Ready(responses=responses, effects=effects)

    # --- inside ---

    def _refusal(self) -> ErrorCode:
        loading = self.state is ShardState.LOADING
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR

    def _ready(self, decision: Decision) -> Ready:
        assert self._appending is None, "the last batch was not appended"
        if decision.records or decision.marker is not None:
            batch = self._encode(decision)
            self._appending = decision
            return Ready(batch, decision.notes)
        if self._pending:
            self._pending[-1][1].append(decision)
            return Ready(notes=decision.notes)
        return Ready(None, decision.notes, self._release(decision.responses), decision.effects)

    def _encode(self, decision: Decision) -> StateBatch:
        try:
            if decision.marker is not None:
                assert decision.producer is not None and not decision.records, "a marker stands alone"
            encoded = [self.coordinator.encode(key, value) for key, value in decision.records]
            return StateBatch(
                encoded,
                decision.producer,
                decision.marker,
                decision.is_verified,
                decision.transaction_version,
            )
        except Exception:
            if decision.undo is not None:
                decision.undo()
            raise

    def _take_appending(self) -> Decision:
        assert self._appending is not None, "no batch is being appended"
        decision, self._appending = self._appending, None
        return decision

    def _release(self, responses: list[Response]) -> list[Response]:
        for token, _ in responses:
            self._requests.pop(token, None)
        return responses
