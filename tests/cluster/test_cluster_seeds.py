"""A hundred simulated runs of a cluster; `make sim-cluster ARGS='--seeds 1000:2000'` goes on with others."""

import pytest

from tests.cluster.run import SEEDS, run_seed, run_seeds
from tests.selection import chunks
from tests.simulation.run import Totals

CHUNK = 8


@pytest.mark.parametrize("first", chunks(SEEDS, CHUNK))
def test_a_cluster_keeps_its_promises_whatever_befalls_it(first: int) -> None:
    totals = Totals()
    for outcome in run_seeds(range(first, first + CHUNK)):
        totals.add(outcome)
        if outcome.failure is not None:
            pytest.fail(outcome.explain(run_seed), pytrace=False)
    print(totals)
    assert totals.share("seeds that count") > 0.6
    for what in ("elections of leaders", "truncations of replicas", "joins", "crashes with a loss"):
        assert totals.share(what) > 0.3, what
