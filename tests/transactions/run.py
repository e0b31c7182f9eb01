"""One seed, one run of a cluster with transactions."""

from tests.cluster.run import run_plan
from tests.simulation.seeds import Outcome
from tests.simulation.trace import Trace
from tests.transactions.epochs import epochs_of
from tests.transactions.tempest import Tempest


def run_seed(seed: int, trace: Trace | None = None) -> Outcome:
    with epochs_of(seed):
        outcome = run_plan(seed, lambda: Tempest(seed, trace))
    outcome.target = "sim-transactions"
    return outcome
