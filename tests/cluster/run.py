"""One seed, one run of a cluster: what it was worth, or how it failed."""

from collections.abc import Callable, Iterable, Iterator

from tests.cluster.moves import MovingStorm
from tests.cluster.plan import Plan
from tests.cluster.rot import RottenStorm
from tests.cluster.storm import Storm
from tests.simulation.seeds import Outcome, Run, run_all, run_plan
from tests.simulation.trace import Trace

METADATA_EVERY = 16  # seeds: these have operators and metadata alone, and all others have data
SEEDS = 104  # that `make test-all` runs; `make test` runs half of them
MOVES_EVERY = 8  # and of those, these have partitions that move
MOVES_FROM = 4
ROT_EVERY = 8  # and in these, disks return other bytes than they were given
ROT_FROM = 7
COLLECT_EVERY = 5  # seeds
# Kinds of seeds: what planted bugs may need.
KINDS: dict[str, Callable[[int], bool]] = {
    "": lambda seed: seed % METADATA_EVERY != 0,
    "metadata": lambda seed: seed % METADATA_EVERY == 0,
    "moves": lambda seed: isinstance(new_plan(seed), MovingStorm),
    "rot": lambda seed: isinstance(new_plan(seed), RottenStorm),
    "deleted": lambda seed: _has_topic(seed, "deleted"),
}


def new_plan(seed: int, trace: Trace | None = None) -> Plan | Storm:
    if seed % METADATA_EVERY == 0:
        return Plan(seed, trace)
    if seed % ROT_EVERY == ROT_FROM:
        return RottenStorm(seed, trace)
    return MovingStorm(seed, trace) if seed % MOVES_EVERY == MOVES_FROM else Storm(seed, trace)


def run_seed(seed: int, trace: Trace | None = None) -> Outcome:
    return run_plan(seed, lambda: new_plan(seed, trace), "sim-cluster")


def _has_topic(seed: int, kind: str) -> bool:
    plan = new_plan(seed)
    return isinstance(plan, Storm) and plan.kind == kind


def hunt(kind: str) -> Iterator[Outcome]:
    """Run the seeds of this kind among those that `make test-all` runs."""
    return run_seeds(filter(KINDS[kind], range(SEEDS)))


def run_seeds(seeds: Iterable[int], run: Run = run_seed) -> Iterator[Outcome]:
    return run_all(seeds, run, COLLECT_EVERY)
