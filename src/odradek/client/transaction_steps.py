"""The common part of protocols that write by transactions: the steps, what may come of them, and how to give up.

A protocol is a state machine without input or output. `step` takes what came of the current step, and returns the next;
its table says how, and a combination that is not in it is a bug of whoever carries the steps out. Protocols add steps
and outcomes of their own: `odradek.ledger.protocol` writes batches, `odradek.mirror.protocol` copies partitions.

There is no step for an abort: Initialize raises the epoch, and ends what is open (`transactions` says why).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Step:
    """The next thing to do."""


class Initialize(Step):
    """InitProducerId: fence whoever wrote before, and end what is open."""


class Commit(Step):
    """EndTxn, once everything that was sent is acknowledged."""


class Look(Step):
    """Ask the coordinator what became of our transaction."""


@dataclass(frozen=True)
class Stop(Step):
    """The end: raise the error."""

    error: Exception


@dataclass(frozen=True)
class Outcome:
    """The outcome of a step."""


class Succeeded(Outcome):
    """The step was carried out."""


@dataclass(frozen=True)
class Fenced(Outcome):
    """Our epoch is no longer the newest. `open_ms`: how long our transaction had been open, by our clock."""

    open_ms: int
    timeout_ms: int

    @property
    def may_be_timeout(self) -> bool:
        """Only after our own timeout may it have been the coordinator who fenced us."""
        return self.open_ms >= self.timeout_ms


@dataclass(frozen=True)
class Seen(Outcome):
    """`is_timeout`: the coordinator aborted our own transaction, and nobody has initialized since."""

    is_timeout: bool


@dataclass(frozen=True)
class Lost(Outcome):
    """The transaction cannot be committed any more, or it is not known whether it was; nobody fenced us."""

    why: str


@dataclass(frozen=True)
class Refused(Outcome):
    """An error that no retry can change."""

    error: Exception


Moves = Mapping[tuple[type[Step], type[Outcome]], Callable[[Any, Outcome], Step]]


class TransactionProtocol:
    """`moves` is the table: what a protocol does, by its current step and what came of it."""

    def __init__(self, moves: Moves) -> None:
        self._moves = moves
        self._current: Step = Initialize()
        self._giving_up: Exception | None = None

    def step(self, outcome: Outcome) -> Step:
        """The next step, by what came of the last."""
        return self._next(self._moves[type(self._current), type(outcome)](self, outcome))

    def _next(self, step: Step) -> Step:
        self._current = step
        return step

    def _refused(self, outcome: Outcome) -> Step:
        """In a transaction."""
        assert isinstance(outcome, Refused)
        return self._give_up(outcome.error)

    def _give_up(self, error: Exception) -> Step:
        """Abort what is open, so that no reader waits for it, and raise the error."""
        self._giving_up = error
        return Initialize()

    def _stopped(self, outcome: Outcome) -> Step:
        """Whoever cannot even initialize, or read, has nothing to abort; a failed abort must not hide its cause."""
        assert isinstance(outcome, Refused)
        return Stop(self._giving_up or outcome.error)
