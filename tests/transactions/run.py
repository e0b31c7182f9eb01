"""One seed, one run of a cluster with transactions."""

from collections.abc import Iterator

from tests.cluster.run import run_seeds
from tests.simulation.seeds import Outcome, run_plan
from tests.simulation.trace import Trace
from tests.transactions.epochs import epochs_of
from tests.transactions.tempest import EXPIRING, MEMBERS, MORE_EVERY, Tempest

SEEDS = 32  # that `make test-all` runs; `make test` runs half of them
# Kinds of seeds, which planted bugs may need, by the rest that they leave.
KINDS = {"": range(MORE_EVERY), "expiring": [EXPIRING], "members": [MEMBERS]}


def run_seed(seed: int, trace: Trace | None = None) -> Outcome:
    with epochs_of(seed):
        return run_plan(seed, lambda: Tempest(seed, trace), "sim-transactions")


def hunt(kind: str) -> Iterator[Outcome]:
    """Run the seeds of this kind among those that `make test-all` runs."""
    return run_seeds([seed for seed in range(SEEDS) if seed % MORE_EVERY in KINDS[kind]], run_seed)
