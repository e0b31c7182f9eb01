"""Hundreds of seeds of the quorum under faults, and the proof that they would notice: planted bugs are caught."""

import pytest
from tests.raft.simulation import Simulation

from odradek.raft.core import Raft
from odradek.raft.driver import Driver
from odradek.raft.log_view import Agreement
from odradek.raft.roles import Follower, Leader

SEEDS_PER_TEST = 10
SEEDS_TO_CATCH = 300


def simulate(seed, **types):
    return Simulation(seed, voters=3 if seed % 3 else 5, observers=1 + seed % 2, **types).simulate()


@pytest.mark.parametrize("first", range(0, 200, SEEDS_PER_TEST))
def test_safe_whatever_happens_and_a_leader_soon_after(first):
    runs = [simulate(seed) for seed in range(first, first + SEEDS_PER_TEST)]
    assert sum(run.invariants.elections for run in runs) > SEEDS_PER_TEST, "faults that do something"
    assert sum(run.invariants.committed_end for run in runs) > 30 * SEEDS_PER_TEST
    assert sum(run.crashes for run in runs) > SEEDS_PER_TEST
    assert sum(run.installs for run in runs) > 0, "snapshots that replaced a log"


def test_one_seed_is_one_run():
    def history(seed):
        run = simulate(seed)
        return run.order, run.now, run.invariants.leaders, run.invariants.committed

    assert history(7) == history(7)


# Planted bugs


class AnswersBeforeItPersists(Driver):
    """Writes quorum-state after the messages have left."""

    def _perform(self, ready, now_ms):
        super()._perform(ready._replace(election=None), now_ms)
        if ready.election is not None:
            self._store.save_election(ready.election)


class CommitsByCounting(Raft):
    """An entry of an older epoch on a majority counts as committed."""

    def _maybe_advance(self, role):
        real, role.epoch_start_offset = role.epoch_start_offset, -1
        super()._maybe_advance(role)
        role.epoch_start_offset = real


class TruncatesTooMuch(Raft):
    """Cuts the whole epoch in which the logs diverge, committed or not."""

    def _truncate(self, role, diverging):
        offset = self.log.end_of(diverging.epoch - 1).offset
        self.log.truncate_to(offset)
        self._work.truncate_to = offset


class IgnoresDivergence(Raft):
    """Takes the fetch offset of every follower for its own log."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.log.check = lambda offset, last_epoch: Agreement()


class DisturbsTheLeader(Raft):
    """Grants pre-votes although it hears of its leader."""

    def _handle_vote(self, request):
        if isinstance(self.role, Follower):
            self.role.has_fetched = False
        return super()._handle_vote(request)


class AnswersAfterItResigned(Raft):
    """Fetches stay parked when the leader resigns, and are answered in time."""

    def _become(self, role):
        parked, epoch = (self.role.parked, self.epoch) if isinstance(self.role, Leader) else ([], 0)
        requests = list(parked)
        parked.clear()
        super()._become(role)
        for fetch in requests:
            self._respond(
                fetch.sender, fetch.correlation_id, self._fetched(fetch.request)._replace(epoch=epoch)
            )


class VotesForOldLogs(Raft):
    """Does not compare the candidate's log with its own."""

    def _handle_vote(self, request):
        last_epoch = request.epoch if request.is_pre_vote else request.epoch - 1
        return super()._handle_vote(request._replace(last_epoch=last_epoch, end_offset=1 << 40))


class CountsItsUnsyncedRecords(Raft):
    """The leader counts what it has in memory."""

    def _handle_appended(self, batches):
        super()._handle_appended(batches)
        if isinstance(self.role, Leader):
            self.log.synced_offset = self.log.end_offset
            self._maybe_advance(self.role)
            self._work.sync = True


class FetchesBeforeItSynced(Raft):
    """A follower tells its leader that it has what is not on its disk."""

    def _ready(self):
        real, self.log.synced_offset = self.log.synced_offset, self.log.end_offset
        ready = super()._ready()
        self.log.synced_offset = min(real, self.log.end_offset)
        return ready


@pytest.mark.parametrize(
    "planted",
    [
        {"driver_type": AnswersBeforeItPersists},
        {"raft_type": CommitsByCounting},
        {"raft_type": TruncatesTooMuch},
        {"raft_type": IgnoresDivergence},
        {"raft_type": DisturbsTheLeader},
        {"raft_type": AnswersAfterItResigned},
        {"raft_type": VotesForOldLogs},
        {"raft_type": CountsItsUnsyncedRecords},
        {"raft_type": FetchesBeforeItSynced},
    ],
    ids=lambda planted: next(iter(planted.values())).__name__,
)
def test_a_planted_bug_is_caught(planted):
    for seed in range(SEEDS_TO_CATCH):
        try:
            simulate(seed, **planted)
        except AssertionError:
            return
    pytest.fail(f"not caught within {SEEDS_TO_CATCH} seeds")
