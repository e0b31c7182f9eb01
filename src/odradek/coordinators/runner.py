"""Runs a coordinator on its partition, of whatever kind it is.

A `Shard` decides, and this is the loop around it: it loads the shard from the log, appends the shard's records,
sends the responses and has the effects carried out once they are committed, fires the timers, and resigns when the
partition is gone. The clock, the timers, the partition and the one who performs effects are passed in, so the same loop
runs in a broker and in a simulation on virtual time.

Failures are not final. If an append fails, the client that caused it gets an error. A log that cannot be read is
read again, after a pause that doubles with each attempt. A timer, a response or an effect that raises does not affect
the others.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from odradek.coordinators.journal import Journal
from odradek.coordinators.runtime import (
    Coordinator,
    Decision,
    Effect,
    Note,
    Ready,
    Response,
    Shard,
    ShardState,
    StateBatch,
    Token,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.host.log_lines import counted, fields
from odradek.model import Caller
from odradek.wording import count_of, duration, shown

log = logging.getLogger(__name__)

LOAD_RETRY_SECONDS = 1.0  # after the first failure, twice as long after each further one
MAX_LOAD_RETRY_SECONDS = 60.0
TICK_RETRY_SECONDS = 1.0

AnyCoordinator = TypeVar("AnyCoordinator", bound=Coordinator)
Event = Callable[[AnyCoordinator, int], Decision | None]  # takes the coordinator and the time

OUTDATED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


class Timer(Protocol):
    def cancel(self) -> None: ...


class Host(Protocol):
    """The outside world, as far as a runner needs it."""

    def now_ms(self) -> int:
        """The time of day, which records carry."""

    def steady_ms(self) -> int:
        """A clock that never jumps: sessions must not end because the time of day was set."""

    def call_soon(self, callback: Callable[..., None], *arguments: Any) -> Timer: ...

    def call_later(self, seconds: float, callback: Callable[..., None], *arguments: Any) -> Timer: ...


class Runner(Generic[AnyCoordinator]):
    """Refuses requests with COORDINATOR_LOAD_IN_PROGRESS until `begin_loading` was called and has succeeded."""

    def __init__(
        self,
        journal: Journal,
        new_coordinator: Callable[[], AnyCoordinator],
        host: Host,
        perform: Callable[["Runner[AnyCoordinator]", Effect], None] | None = None,
    ) -> None:
        """`perform` begins to carry out an effect, and later tells this runner what became of it. None: this kind of
        coordinator has no effects."""
        self._journal = journal
        self._new_coordinator = new_coordinator
        self._perform = perform
        self._host = host
        self._start_over()
        self._timer: Timer | None = None
        self._timer_due_ms = 0
        self._loading: Timer | None = None  # the next piece, or the next attempt
        self._loading_since_ms = 0
        self._records_loaded = 0
        self._failed_loads = 0
        self._untold: list[Event[AnyCoordinator]] = []  # events while the coordinator was loading

    def _start_over(self) -> None:
        self.coordinator = self._new_coordinator()
        self._shard = Shard(self.coordinator)

    # --- loading ---

    def begin_loading(self) -> None:
        """A piece of the log in each turn of the event loop. An empty log is loaded at once."""
        self._loading_since_ms, self._records_loaded = self._host.steady_ms(), 0
        if self._journal.is_empty:
            self._load_next(iter(()))
        else:
            self._loading = self._host.call_soon(self._load_next, self._journal.pieces())

    def _load_next(self, pieces: Iterator[list[StateBatch]]) -> None:
        self._loading = None
        try:
            piece = next(pieces, None)
            if piece is None:
                self._finish_loading()
                return
            for batch in piece:
                self._shard.replay(batch)
                self._records_loaded += len(batch.records)
        except Exception as error:
            self._load_again(error)
        else:
            self._loading = self._host.call_soon(self._load_next, pieces)

    def _finish_loading(self) -> None:
        now_ms = self._host.steady_ms()
        last_uncommitted = self._journal.last_uncommitted
        self._shard.loaded(now_ms, last_uncommitted)
        if last_uncommitted is not None:
            self._journal.commit(last_uncommitted, self._committed)
        for event in self._untold:
            self._decide(event)
        self._untold.clear()
        self._log_loaded(now_ms)
        self._tick()

    def _log_loaded(self, now_ms: int) -> None:
        log.log(
            logging.INFO if len(self.coordinator) else logging.DEBUG,
            "loaded %s from %s in %s (%s)",
            self._summary() if len(self.coordinator) else "nothing",
            self._journal.name,
            duration((now_ms - self._loading_since_ms) / 1000),
            count_of(self._records_loaded, "record"),
        )

    def _summary(self) -> str:
        return count_of(len(self.coordinator), self.coordinator.noun)

    def _load_again(self, error: Exception) -> None:
        """Load from the beginning, into a new state: the old one may be incomplete."""
        delay = min(LOAD_RETRY_SECONDS * 2**self._failed_loads, MAX_LOAD_RETRY_SECONDS)
        self._failed_loads += 1
        log.error(
            "%s: its coordinator cannot be loaded and refuses requests until then; trying again in %g s: %s",
            self._journal.name,
            delay,
            error,
            exc_info=not is_expected(error),
        )
        self._start_over()
        self._loading = self._host.call_later(delay, self.begin_loading)

    # --- events ---

    def handle(self, request: Any, version: int, caller: Caller, token: Token) -> None:
        """`token` is called with the response exactly once, now or later, unless this raises."""
        self._carry_out(self._shard.handle(request, version, caller, token, self._host.steady_ms()))
        self._set_timer()

    def tell(self, event: Event[AnyCoordinator]) -> None:
        """Tell the coordinator about an event that is not a request. While it loads, the event waits."""
        if self._shard.state is ShardState.LOADING:
            self._untold.append(event)
        elif self.is_active:
            self._decide(event)
            self._tick()

    def _decide(self, event: Event[AnyCoordinator]) -> None:
        decision = event(self.coordinator, self._host.steady_ms())
        if decision is not None:
            self._carry_out(self._shard.decided(decision))

    @property
    def is_active(self) -> bool:
        """True once the coordinator is loaded, until it resigns."""
        return self._shard.state is ShardState.ACTIVE

    def resign(self, reason: str = "its partition is gone", level: int = logging.INFO) -> None:
        """The partition is gone, or the broker stops: refuse every open request, and all later ones."""
        if self.is_active and len(self.coordinator):
            log.log(level, "unloaded %s of %s: %s", self._summary(), self._journal.name, reason)
        for timer in (self._timer, self._loading):
            if timer is not None:
                timer.cancel()
        self._send(self._shard.resigned())

    # --- timers ---

    def _tick(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            while (ready := self._shard.tick(self._host.steady_ms())) is not None:
                self._carry_out(ready)
        except Exception:
            log.exception(
                "%s: a timer of its coordinator failed: this is a bug; the others are tried again in %g s",
                self._journal.name,
                TICK_RETRY_SECONDS,
            )
            self._call_tick_in(TICK_RETRY_SECONDS, self._host.steady_ms() + int(TICK_RETRY_SECONDS * 1000))
            return
        self._set_timer()

    def _set_timer(self) -> None:
        """One timer for the whole shard, at its earliest deadline."""
        due_ms = self._shard.next_deadline_ms()
        if due_ms is None or (self._timer is not None and self._timer_due_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._call_tick_in(max(due_ms - self._host.steady_ms(), 0) / 1000, due_ms)

    def _call_tick_in(self, seconds: float, due_ms: int) -> None:
        self._timer_due_ms = due_ms
        self._timer = self._host.call_later(seconds, self._tick)

    # --- what is ready ---

    def _carry_out(self, ready: Ready) -> None:
        if ready.batch is None or self._append(ready.batch):
            for note in ready.notes:
                self._write(note)
        self._send(ready.responses)
        for effect in ready.effects:
            self._begin(effect)

    def _write(self, note: Note) -> None:
        named = fields(**{note.noun.replace(" ", "_"): note.key})
        log.log(note.level, "%s %s: %s", note.noun, shown(note.key), note.text, extra=named)

    def _append(self, batch: StateBatch) -> bool:
        try:
            last_offset = self._journal.append(batch, self._host.now_ms())
        except Exception as error:
            self._tell_of_refusal(error)
            code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
            self._send(self._shard.append_failed(code))
            return False
        self._shard.appended(last_offset)
        self._journal.commit(last_offset, self._committed)
        return True

    def _tell_of_refusal(self, error: Exception) -> None:
        """Clients try again, many times a second, while a partition has too few replicas in sync. A marker that is too
        old says something about its sender, and nothing about this broker."""
        name, message = self._journal.name, "cannot write to %s, so what a client asked for is refused: %s"
        if is_expected(error):
            is_outdated = isinstance(error, KafkaError) and error.code in OUTDATED
            level = logging.WARNING if is_outdated else logging.ERROR
            counted(log, level, str(name), f"refused, {error}", message, name, error)
        else:
            log.error(message, name, error, exc_info=True)

    def _committed(self, error: ErrorCode) -> None:
        if error:
            self.resign(f"its records cannot be committed ({error.name})", logging.WARNING)
        else:
            self._carry_out(self._shard.committed(self._journal.high_watermark))

    def _send(self, responses: Iterable[Response]) -> None:
        for token, response in responses:
            try:
                token(response)
            except Exception:
                log.exception(
                    "%s: a response of its coordinator failed: this is a bug; the others are sent",
                    self._journal.name,
                )

    def _begin(self, effect: Effect) -> None:
        try:
            assert self._perform is not None, "nobody can carry it out"
            self._perform(self, effect)
        except Exception:
            log.exception(
                "%s: %s of its coordinator failed: this is a bug; the other effects are carried out",
                self._journal.name,
                type(effect).__name__,
            )


def is_expected(error: Exception) -> bool:
    """The world's failure, not ours: its message is enough, a traceback says no more."""
    return isinstance(error, (OSError, KafkaError))
