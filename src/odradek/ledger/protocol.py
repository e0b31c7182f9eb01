"""A state machine that decides what to do next with a batch, so that its rows are visible if and only if the ledger
names it.

A `BatchProtocol` is one run of one batch. `start` returns the first step; whoever carries it out reports what came of
it (`step`), and gets the next, until `Done`, `Skip` or `Stop`. Nothing here sends, waits or looks at a clock.

                      ┌───────────────── Lost, TimedOutHere ─────────────────┐
                      ▼                                                      │
    Initialize ──► ReadLedger ──► [Adopt] ──► Send ──► Record ──► Commit ──► Done
                      │  └──► Skip              └────────┴──────────┴──► Refused: Initialize, then Stop
                      └─────► Stop              └────────┴──────────┴──► Fenced: Look, or Stop

A process that knows what the ledger says, because it wrote the batch before and holds the producer's epoch, begins at
Send.
"""

from collections.abc import Callable
from dataclasses import dataclass

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
from odradek.ledger.record import ANY, Entry

MAX_LOSSES = 3  # of a transaction in one run of a batch, before the reason is reported


class ExactlyOnceError(Exception):
    """A batch that cannot be written exactly once. The message says what to do."""


class AnotherProcess(ExactlyOnceError):
    """Another process writes for the same sink."""


class LedgerLost(ExactlyOnceError):
    """The ledger does not know what was written before."""


class OlderCheckpoint(ExactlyOnceError):
    """The checkpoint is behind what was written."""


class TooSlow(ExactlyOnceError):
    """A batch cannot be sent within its transaction's timeout."""


class TransactionLost(ExactlyOnceError):
    """The transaction was lost again and again."""


class ReadLedger(Step):
    """Read the sink's last entry, below the partition's present high watermark."""


@dataclass(frozen=True)
class Adopt(Step):
    """Note durably that the checkpoint has a ledger, from this batch on."""

    first: int


class Send(Step):
    """Send all rows, in a new transaction."""


class Record(Step):
    """Send the ledger's record, in the same transaction."""


@dataclass(frozen=True)
class Skip(Step):
    """The end: the batch was written before."""

    entry: Entry


class Done(Step):
    """The end: the batch is written."""


@dataclass(frozen=True)
class Found(Outcome):
    """The ledger's entry, if there is one. `topic_id` identifies the ledger itself."""

    entry: Entry | None
    topic_id: str


@dataclass(frozen=True)
class Adoption:
    """A checkpoint's note of its first batch with a ledger, and the id of the ledger's topic."""

    first: int
    topic_id: str


@dataclass(frozen=True)
class Order:
    """A batch of a sink. `adoption` is what its checkpoint notes; None before its first transaction."""

    sink: str
    batch: int
    fingerprint: str
    adoption: Adoption | None = None


class BatchProtocol(TransactionProtocol):
    def __init__(self, order: Order, known: Entry | None = None) -> None:
        """`known` is what the ledger says, if the caller holds the epoch that wrote it."""
        super().__init__(MOVES)
        self._order, self._known = order, known
        self._losses = 0
        self._timeouts = self._timeout_ms = 0

    def start(self) -> Step:
        """Only the batch after the known one needs no look: for another, somebody may have changed the ledger."""
        if self._known is None or self._order.adoption is None or self._known.batch != self._order.batch - 1:
            return self._next(Initialize())
        return self._next(Send())

    # After Initialize, ReadLedger and Adopt

    def _initialized(self, _: Outcome) -> Step:
        return ReadLedger() if self._giving_up is None else Stop(self._giving_up)

    def _read(self, outcome: Outcome) -> Step:
        assert isinstance(outcome, Found)
        order, adoption = self._order, self._order.adoption
        is_another = adoption is None or adoption.topic_id != outcome.topic_id
        is_operators = outcome.entry is not None and outcome.entry.fingerprint == ANY
        if adoption is not None and is_another and not is_operators:
            return Stop(LedgerLost(_recreated(order)))
        if outcome.entry is not None:
            decided = self._by_entry(outcome.entry)
        elif adoption is None or adoption.first == order.batch:
            decided = Send()
        elif adoption.first < order.batch:
            return Stop(LedgerLost(_no_entry(order, adoption)))
        else:
            return Stop(OlderCheckpoint(_before_adoption(order, adoption)))
        return Adopt(order.batch) if is_another and isinstance(decided, Send) else decided

    def _by_entry(self, entry: Entry) -> Step:
        order = self._order
        if entry.batch == order.batch - 1:
            return Send()
        if entry.batch == order.batch:
            return Skip(entry) if entry.is_of(order.fingerprint) else Stop(OlderCheckpoint(_other(order)))
        if entry.batch > order.batch:
            return Stop(OlderCheckpoint(_behind(order, entry)))
        return Stop(LedgerLost(_gap(order, entry)))

    def _adopted(self, _: Outcome) -> Step:
        return Send()

    # While the transaction is open

    def _sent(self, _: Outcome) -> Step:
        return Record()

    def _recorded(self, _: Outcome) -> Step:
        return Commit()

    def _committed(self, _: Outcome) -> Step:
        return Done()

    def _lost(self, outcome: Outcome) -> Step:
        assert isinstance(outcome, Lost)
        if self._giving_up is not None:
            return Stop(self._giving_up)
        self._losses += 1
        if self._losses >= MAX_LOSSES:
            return self._give_up(TransactionLost(_lost_often(self._order, outcome.why)))
        return Initialize()

    def _overtaken(self, _: Outcome) -> Step:
        """Two processes initialized at once."""
        return Stop(self._giving_up or AnotherProcess(_other_process(self._order)))

    def _fenced(self, outcome: Outcome) -> Step:
        assert isinstance(outcome, Fenced)
        if not outcome.may_be_timeout:
            return Stop(AnotherProcess(_other_process(self._order)))
        self._timeout_ms = outcome.timeout_ms
        return Look()

    def _looked(self, outcome: Outcome) -> Step:
        assert isinstance(outcome, Seen)
        if not outcome.is_timeout:
            return Stop(AnotherProcess(_other_process(self._order)))
        self._timeouts += 1
        if self._timeouts > 1:
            return Stop(TooSlow(_too_slow(self._order, self._timeout_ms)))
        return Initialize()


Move = Callable[[BatchProtocol, Outcome], Step]
IN_TRANSACTION = (Send, Record, Commit)
MOVES: dict[tuple[type[Step], type[Outcome]], Move] = {
    (Initialize, Succeeded): BatchProtocol._initialized,
    (Initialize, Lost): BatchProtocol._lost,
    (Initialize, Fenced): BatchProtocol._overtaken,
    (Initialize, Refused): BatchProtocol._stopped,
    (ReadLedger, Found): BatchProtocol._read,
    (ReadLedger, Refused): BatchProtocol._stopped,
    (Adopt, Succeeded): BatchProtocol._adopted,
    (Adopt, Refused): BatchProtocol._stopped,
    (Send, Succeeded): BatchProtocol._sent,
    (Record, Succeeded): BatchProtocol._recorded,
    (Commit, Succeeded): BatchProtocol._committed,
    **{(step, Lost): BatchProtocol._lost for step in IN_TRANSACTION},
    **{(step, Refused): BatchProtocol._refused for step in IN_TRANSACTION},
    **{(step, Fenced): BatchProtocol._fenced for step in IN_TRANSACTION},
    (Look, Seen): BatchProtocol._looked,
    (Look, Refused): BatchProtocol._stopped,
}


# What people read


def _reset(order: Order, batch: int) -> str:
    return f"'odradek ledger reset {order.sink} --to {batch}'"


def _choice(order: Order) -> str:
    return (
        f"If its rows are not in the topic, {_reset(order, order.batch - 1)} lets the next run write them; if they "
        f"are, {_reset(order, order.batch)} lets it skip them"
    )


def _recreated(order: Order) -> str:
    return (
        f"the ledger's topic is not the one that this checkpoint was written with, so it is not known whether batch "
        f"{order.batch} was written. It was deleted and created again, or this is another cluster. {_choice(order)}"
    )


def _no_entry(order: Order, adoption: Adoption) -> str:
    return (
        f"the ledger has no record of {order.sink}, which has written since batch {adoption.first}, so it is not known "
        f"whether batch {order.batch} was written. {_choice(order)}"
    )


def _before_adoption(order: Order, adoption: Adoption) -> str:
    return (
        f"the checkpoint is at batch {order.batch}, but it has been written exactly once since batch {adoption.first}: "
        f"an older copy of its offsets was restored. Restore a newer one, or start over with another checkpoint"
    )


def _other(order: Order) -> str:
    return (
        f"batch {order.batch} was written before, but it read other records then: an older copy of the checkpoint was "
        "restored, or two copies of it are in use. Restore the checkpoint that wrote it, or start over with another"
    )


def _behind(order: Order, entry: Entry) -> str:
    return (
        f"the checkpoint is at batch {order.batch}, but batch {entry.batch} was written already: an older copy of the "
        "checkpoint was restored, or two copies of it are in use. Restore a newer one; or, to write the rows since "
        f"then a second time, {_reset(order, order.batch - 1)}"
    )


def _gap(order: Order, entry: Entry) -> str:
    return (
        f"the ledger knows batches up to {entry.batch}, the checkpoint is at batch {order.batch}: the ledger has lost "
        f"records, or batches were written without it. {_choice(order)}"
    )


def _other_process(order: Order) -> str:
    return (
        f"another process has begun to write for {order.sink}, from this checkpoint or a copy of it, so this one stops "
        f"at batch {order.batch}. The ledger knows whether it was written. Make sure that only one of them runs"
    )


def _too_slow(order: Order, timeout_ms: int) -> str:
    return (
        f"batch {order.batch} could not be sent within {timeout_ms / 1000:g} s, the timeout of its transaction, twice. "
        "Limit the rows of a batch (maxOffsetsPerTrigger), or raise kafka.transaction.timeout.ms"
    )


def _lost_often(order: Order, why: str) -> str:
    return f"the transaction of batch {order.batch} was lost {MAX_LOSSES} times, the last time because {why}"
