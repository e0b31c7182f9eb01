"""Some hundreds of simulated runs of a whole node; `make sim ARGS='--seeds 1000:20000'` goes on with others."""

import pytest

from tests.selection import chunks
from tests.simulation.plan import WANTED
from tests.simulation.run import SEEDS, Totals, run_seed, run_seeds

CHUNK = 15
RARE_SHARE = 0.25  # of a chunk; about 0.85 have each kind of fault, so chance stays far above this


@pytest.mark.parametrize("first", chunks(SEEDS, CHUNK))
def test_a_node_keeps_its_promises_whatever_befalls_it(first: int) -> None:
    totals = Totals()
    for outcome in run_seeds(range(first, first + CHUNK)):
        totals.add(outcome)
        if outcome.failure is not None:
            pytest.fail(outcome.explain(run_seed), pytrace=False)
        assert outcome.worth.reaches(WANTED)
    print(totals)
    for fault in ("full disks", "times without descriptors", "jumps of the clock"):
        assert totals.share(fault) > RARE_SHARE
