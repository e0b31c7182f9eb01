"""A state machine that decides what to do next with one partition, so that its records are in the copy if and only if
the position names them.

A `CopyProtocol` is one ownership of a partition. `start` returns the first step; whoever carries it out reports what
came of it (`step`), and gets the next, until `Finish`, `Park` or `Stop`. Nothing here reads, sends, waits or looks at a
clock.

        ┌──────────── Lost, Away (after a Pause), Changed ─────────────┐
        ▼                                                              │
    Initialize ──► Locate ──► Fetch ──► Write ──► Record ──► Confirm ──► Commit ──► Fetch …
                     │          │         └──────────┴──────────┴──────────┴──► Refused: Initialize, then Stop
                     └► Stop    └► Finish └──────────┴──────────┴──────────┴──► Fenced: Look, or Park
"""

from collections.abc import Callable
from dataclasses import dataclass

from odradek.client.fetching import NO_EPOCH
from odradek.client.transaction_steps import (
    Commit,
    Fenced,
    Initialize,
    Look,
    Lost,
    Outcome,
    Refused,
    Seen,
    Step,
    Stop,
    Succeeded,
    TransactionProtocol,
)
from odradek.mirror.position import NO_TARGET, Copy, Position

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0


class CannotMirror(Exception):
    """A partition that cannot be copied as it is. The message says what to do."""


class CreatedAgain(CannotMirror):
    """The source's topic is another one than that of the copy."""


class RecordsGone(CannotMirror):
    """The source has lost records before they were copied."""


class NotOurs(CannotMirror):
    """The copy has records of which no position tells."""


class Locate(Step):
    """Read the position, and what there is on both sides."""


@dataclass(frozen=True)
class Fetch(Step):
    """Read from this offset on. `epoch`: the leader epoch of what was read last."""

    offset: int
    epoch: int


class Write(Step):
    """Send what was fetched, in a new transaction."""


@dataclass(frozen=True)
class Record(Step):
    """Send the position, in the same transaction."""

    position: Position


class Confirm(Step):
    """Look whether both topics are still those that they were."""


@dataclass(frozen=True)
class Pause(Step):
    """Wait, for a cluster that is away."""

    seconds: float


class Finish(Step):
    """The end: everything that was wanted is copied."""


class Park(Step):
    """The end: somebody else has the partition. Wait for the group to say whose it is."""


@dataclass(frozen=True)
class Found(Outcome):
    """The facts to begin with. `is_copy_empty` matters where no position counts; `end` is where a run that ends
    stops.
    """

    position: Position | None
    source_id: str
    target_id: str
    start: int
    end: int
    is_copy_empty: bool


@dataclass(frozen=True)
class Fetched(Outcome):
    """`records` from `begin` to `next`; 0 if there are only markers and the like, or nothing at all."""

    next: int
    records: int
    epoch: int


@dataclass(frozen=True)
class Written(Outcome):
    """The copy's offset of the first record, or NO_TARGET."""

    target: int


@dataclass(frozen=True)
class OutOfRange(Outcome):
    """The source has the offsets `[earliest, latest)`, and not the one that we asked for."""

    earliest: int
    latest: int


class Changed(Outcome):
    """One of the topics was deleted, and perhaps created again."""


@dataclass(frozen=True)
class Away(Outcome):
    """A cluster did not answer in time."""

    why: str


class CopyProtocol(TransactionProtocol):
    """`once`: end where the source ended when we began. `accepts_loss`: go on where the source has lost records."""

    def __init__(self, copy: Copy, copy_name: str, *, once: bool = False, accepts_loss: bool = False) -> None:
        super().__init__(MOVES)
        self._copy, self._copy_name, self._once, self._accepts_loss = copy, copy_name, once, accepts_loss
        self._ids = ("", "")
        self._number = self._total = self._origin = (
            0  # of what is committed: transactions, records, first offset
        )
        self._begin = self.next = (
            0  # what is not committed yet begins at one; the other is to be fetched next
        )
        self._epoch = NO_EPOCH
        self._fetched = Fetched(0, 0, NO_EPOCH)
        self._sent: Position | None = None
        self._last: int | None = None  # where a run that ends stops
        self._failures = 0  # in a row

    @property
    def is_in_transaction(self) -> bool:
        return isinstance(self._current, IN_TRANSACTION)

    def start(self) -> Step:
        return self._next(Initialize())

    # Where to begin

    def _initialized(self, _: Outcome) -> Step:
        return Locate() if self._giving_up is None else Stop(self._giving_up)

    def _located(self, found: Outcome) -> Step:
        assert isinstance(found, Found)
        self._ids = (found.source_id, found.target_id)
        if self._last is None and self._once:
            self._last = found.end
        position = found.position
        self._number = 0 if position is None else position.number
        if position is None or position.target_id != found.target_id:
            return self._begin_anew(found)
        if position.source_id != found.source_id:
            return Stop(CreatedAgain(_created_again(self._copy, self._copy_name)))
        self._go_on_after(position)
        return self._fetch_next() if found.start <= position.next else self._gone(found.start, found.end)

    def _begin_anew(self, found: Found) -> Step:
        """Numbers go on, so that a position of an older copy is never taken for the newest."""
        if not found.is_copy_empty:
            return Stop(NotOurs(_not_ours(self._copy, self._copy_name)))
        self._total, self._epoch = 0, NO_EPOCH
        self._begin = self.next = self._origin = found.start
        return self._fetch_next()

    def _go_on_after(self, position: Position) -> None:
        self._number, self._total = position.number, position.total
        self._origin, self._epoch = position.origin, position.epoch
        self._begin = self.next = position.next

    def _gone(self, earliest: int, latest: int) -> Step:
        """The offset is before what there is (deleted), or after it (truncated)."""
        if self._accepts_loss:
            self.next = min(max(self.next, earliest), latest)
            self._begin, self._epoch = min(self._begin, self.next), NO_EPOCH
            return self._fetch_next()
        return Stop(RecordsGone(_records_gone(self._copy, self.next, earliest)))

    # Reading

    def _fetch_next(self) -> Step:
        if self._last is not None and self.next >= self._last:
            return Finish()
        return Fetch(self.next, self._epoch)

    def _read(self, outcome: Outcome) -> Step:
        assert isinstance(outcome, Fetched)
        self._failures = 0
        if outcome.next == self.next and not outcome.records:
            return self._fetch_next()
        self._fetched = outcome
        return Write()

    def _out_of_range(self, outcome: Outcome) -> Step:
        assert isinstance(outcome, OutOfRange)
        return self._gone(outcome.earliest, outcome.latest)

    # Writing

    def _written(self, outcome: Outcome) -> Step:
        assert isinstance(outcome, Written)
        fetched = self._fetched
        return Record(
            Position(
                source_id=self._ids[0],
                target_id=self._ids[1],
                begin=self._begin,
                next=fetched.next,
                target=outcome.target if fetched.records else NO_TARGET,
                records=fetched.records,
                total=self._total + fetched.records,
                number=self._number + 1,
                origin=self._origin,
                epoch=fetched.epoch,
            )
        )

    def _recorded(self, _: Outcome) -> Step:
        assert isinstance(self._current, Record)
        self._sent = self._current.position
        return Confirm()

    def _confirmed(self, _: Outcome) -> Step:
        return Commit()

    def _committed(self, _: Outcome) -> Step:
        assert self._sent is not None
        self._failures = 0
        self._go_on_after(self._sent)
        return self._fetch_next()

    # Failures

    def _again(self, _: Outcome) -> Step:
        """Initialize again: it aborts what was sent, unless that was committed, as the position tells."""
        self._failures += 1
        return Initialize() if self._failures == 1 else self._pause()

    def _away(self, _: Outcome) -> Step:
        self._failures += 1
        return self._pause()

    def _pause(self) -> Step:
        return Pause(min(FIRST_PAUSE_S * 2 ** min(self._failures, 10), LONGEST_PAUSE_S))

    def _paused(self, _: Outcome) -> Step:
        return Initialize()

    def _away_at_start(self, outcome: Outcome) -> Step:
        return self._away(outcome) if self._giving_up is None else Stop(self._giving_up)

    def _fenced(self, outcome: Outcome) -> Step:
        assert isinstance(outcome, Fenced)
        return Look() if outcome.may_be_timeout else Park()

    def _looked(self, outcome: Outcome) -> Step:
        assert isinstance(outcome, Seen)
        return self._again(outcome) if outcome.is_timeout else Park()

    def _parked(self, _: Outcome) -> Step:
        return Park()


Move = Callable[[CopyProtocol, Outcome], Step]
IN_TRANSACTION = (Write, Record, Confirm, Commit)
MOVES: dict[tuple[type[Step], type[Outcome]], Move] = {
    (Initialize, Succeeded): CopyProtocol._initialized,
    (Initialize, Fenced): CopyProtocol._parked,
    (Initialize, Away): CopyProtocol._away_at_start,
    (Initialize, Lost): CopyProtocol._away_at_start,
    (Initialize, Refused): CopyProtocol._stopped,
    (Locate, Found): CopyProtocol._located,
    (Locate, Changed): CopyProtocol._away,
    (Locate, Away): CopyProtocol._away,
    (Locate, Refused): CopyProtocol._stopped,
    (Fetch, Fetched): CopyProtocol._read,
    (Fetch, OutOfRange): CopyProtocol._out_of_range,
    (Fetch, Changed): CopyProtocol._again,
    (Fetch, Away): CopyProtocol._away,
    (Fetch, Refused): CopyProtocol._stopped,
    (Write, Written): CopyProtocol._written,
    (Record, Succeeded): CopyProtocol._recorded,
    (Confirm, Succeeded): CopyProtocol._confirmed,
    (Commit, Succeeded): CopyProtocol._committed,
    **{(step, Lost): CopyProtocol._again for step in IN_TRANSACTION},
    **{(step, Changed): CopyProtocol._again for step in IN_TRANSACTION},
    **{(step, Away): CopyProtocol._away for step in IN_TRANSACTION},
    **{(step, Refused): CopyProtocol._refused for step in IN_TRANSACTION},
    **{(step, Fenced): CopyProtocol._fenced for step in IN_TRANSACTION},
    (Look, Seen): CopyProtocol._looked,
    (Look, Away): CopyProtocol._away,
    (Look, Refused): CopyProtocol._stopped,
    (Pause, Succeeded): CopyProtocol._paused,
}


# What people read


def _start_over(copy_name: str) -> str:
    return f"To start over, delete the copy on the target: odradek topic delete {copy_name}"


def _created_again(copy: Copy, copy_name: str) -> str:
    return (
        f"{copy.topic} of {copy.source} was deleted and created again, and {copy_name} has the records of the old one. "
        f"{_start_over(copy_name)}"
    )


def _not_ours(copy: Copy, copy_name: str) -> str:
    return (
        f"{copy_name}-{copy.partition} has records, but there is no position that tells where they come from: "
        f"somebody else has written them, or the positions were deleted. {_start_over(copy_name)}"
    )


def _records_gone(copy: Copy, wanted: int, earliest: int) -> str:
    how = (
        f"was to go on at offset {wanted}, and {copy.source} begins at {earliest}: its retention was faster than "
        "the mirror"
        if wanted < earliest
        else f"was to go on at offset {wanted}, which {copy.source} no longer has, after an unclean election"
    )
    return f"{copy} {how}. --accept-loss goes on with what there is"
