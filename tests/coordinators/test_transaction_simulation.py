"""The simulation over many seeds, and proof that it would notice: bugs are planted, each must be caught.

To look at one schedule again: `run(seed)` in `transaction_simulation.py`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from odradek.coordinators.journal import Journal
from odradek.coordinators.runtime import Decision, Ready, Shard
from odradek.coordinators.transactions import adding, coordinator, ending
from odradek.coordinators.transactions.coordinator import TransactionCoordinator
from odradek.coordinators.transactions.states import ONGOING, PREPARED
from odradek.coordinators.transactions.transaction import Transaction
from tests.coordinators.transaction_simulation import run
from tests.coordinators.virtual import run_seeds
from tests.selection import chunks

SEEDS = 120
SLICES = 4
SEEDS_TO_CATCH_A_BUG = 300


@pytest.mark.parametrize("first_seed", chunks(SEEDS, SEEDS // SLICES))
def test_transactions_end_one_way_and_all_of_them_end(first_seed: int) -> None:
    committed = sum(
        world.committed for world in run_seeds(run, range(first_seed, first_seed + SEEDS // SLICES))
    )
    assert committed > SEEDS // SLICES * 10, "hardly anything was committed: the simulation shows nothing"


# --- planted bugs ---

Patch = pytest.MonkeyPatch


def markers_leave_before_the_decision_is_committed(patch: Patch) -> None:
    ready_of = Shard._ready

    def hasty(self: Shard, decision: Decision) -> Ready:
        ready = ready_of(self, decision)
        if ready.batch is not None:
            ready.effects, decision.effects = decision.effects, ()
        return ready

    patch.setattr(Shard, "_ready", hasty)


def what_was_loaded_counts_as_committed(patch: Patch) -> None:
    patch.setattr(Journal, "last_uncommitted", None)


def markers_are_not_written_again(patch: Patch) -> None:
    patch.setattr(TransactionCoordinator, "_write_markers_again", lambda self, now_ms: Decision())


def a_prepared_transaction_times_out(patch: Patch) -> None:
    watch = TransactionCoordinator._watch

    def watched(self: Any, transactional_id: str, transaction: Transaction | None) -> None:
        if transaction is not None and transaction.state in PREPARED:
            self.timers.postpone(("overdue", transactional_id), transaction.started_ms + 1)
        else:
            watch(self, transactional_id, transaction)

    def overdue(self: Any, transactional_id: str, now_ms: int) -> Decision | None:
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.state not in {ONGOING, *PREPARED}:
            return None
        fenced = transaction._replace(state=ONGOING).fenced(
            version=self._version(), next_producer_id=-1, now_ms=now_ms
        )
        return self._prepared(fenced, now_ms)

    patch.setattr(TransactionCoordinator, "_watch", watched)
    patch.setattr(TransactionCoordinator, "_overdue", overdue)


def nobody_times_out(patch: Patch) -> None:
    patch.setattr(TransactionCoordinator, "_overdue", lambda self, transactional_id, now_ms: None)


def the_epoch_is_not_raised_at_the_end(patch: Patch) -> None:
    prepared = Transaction.prepared

    def same(self: Transaction, **options: Any) -> Transaction:
        after = prepared(self, **options)
        return after._replace(producer_epoch=self.producer_epoch)

    patch.setattr(Transaction, "prepared", same)


def a_fenced_producer_may_end(patch: Patch) -> None:
    judge, judge_raised = ending.judge, ending.judge_by_raised_epoch

    def mild(transaction: Transaction, request: Any) -> Any:
        return judge(transaction, replace(request, producer_epoch=transaction.producer_epoch))

    def mild_raised(transaction: Transaction, request: Any) -> Any:
        if transaction.state is ONGOING:
            request = replace(request, producer_epoch=transaction.producer_epoch)
        return judge_raised(transaction, request)

    patch.setattr(coordinator.ending, "judge", mild)
    patch.setattr(coordinator.ending, "judge_by_raised_epoch", mild_raised)


def partitions_are_added_after_the_decision(patch: Patch) -> None:
    def careless(transaction: Transaction, asked: Any) -> bool:
        adding._check_producer(transaction, asked)
        return transaction.state not in PREPARED

    patch.setattr(adding, "check_add", careless)
    patch.setattr(TransactionCoordinator, "_may_wait", lambda *_: False)


def an_abort_follows_a_commit(patch: Patch) -> None:
    """EndTxn for the second time, the other way, while the markers are written."""

    def careless(transaction: Transaction, request: Any) -> Any:
        return ending.Verdict.END

    prepared = Transaction.prepared

    def again(self: Transaction, **options: Any) -> Transaction:
        if self.state in PREPARED:
            return prepared(self._replace(state=ONGOING), **(options | {"commit": not self.is_commit}))
        return prepared(self, **options)

    judge = ending.judge_by_raised_epoch
    patch.setattr(
        coordinator.ending,
        "judge_by_raised_epoch",
        lambda transaction, request: (
            careless(transaction, request)
            if transaction.state in PREPARED and transaction.producer_epoch == request.producer_epoch + 1
            else judge(transaction, request)
        ),
    )
    patch.setattr(Transaction, "prepared", again)


BUGS: list[Callable[[Patch], None]] = [
    markers_leave_before_the_decision_is_committed,
    what_was_loaded_counts_as_committed,
    markers_are_not_written_again,
    a_prepared_transaction_times_out,
    nobody_times_out,
    the_epoch_is_not_raised_at_the_end,
    a_fenced_producer_may_end,
    partitions_are_added_after_the_decision,
    an_abort_follows_a_commit,
]


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(SEEDS_TO_CATCH_A_BUG):
            run(seed)
