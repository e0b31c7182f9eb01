"""Some simulated runs with transactions; `make sim-transactions ARGS='--seeds 100:2000'` goes on with others."""

import pytest

from tests.cluster.run import run_seeds
from tests.selection import chunks
from tests.simulation.run import Totals
from tests.transactions.run import SEEDS, run_seed

CHUNK = 8


@pytest.mark.parametrize("first", chunks(SEEDS, CHUNK))
def test_transactions_keep_their_promises_whatever_befalls_the_cluster(first: int) -> None:
    totals = Totals()
    for outcome in run_seeds(range(first, first + CHUNK), run_seed):
        totals.add(outcome)
        if outcome.failure is not None:
            pytest.fail(outcome.explain(run_seed), pytrace=False)
    print(totals)
    assert totals.share("seeds that count") > 0.6
    for what in (
        "truncations of replicas",
        "late batches refused",
        "lost ends",
        "offsets read",
        "batches hidden as aborted",
        "committed records that were compacted away",
    ):
        assert totals.share(what) > 0.3, what
