"""One seed, one run of a cluster: what it was worth, or how it failed."""

import gc
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.cluster.plan import Plan
from tests.cluster.storm import Storm
from tests.simulation.trace import Trace

METADATA_EVERY = 8  # seeds: these have operators and metadata alone, and all others have data
COLLECT_EVERY = 5  # seeds: a run leaves machines without power behind, which hold each other
LAST_LINES = 40


@dataclass
class Outcome:
    seed: int
    worth: tuple[int, ...]
    is_worth: bool  # it has seen enough to count
    counts: dict[str, int] = field(default_factory=dict)
    failure: BaseException | None = None
    cpu_seconds: float = 0.0

    def explain(self) -> str:
        """Why it failed, the end of its trace, and how to see the whole of it."""
        assert self.failure is not None
        trace = Trace()
        run_seed(self.seed, trace)
        return "\n".join(
            [
                *trace.lines[-LAST_LINES:],
                "".join(traceback.format_exception(self.failure)),
                f"seed {self.seed} failed: {self.failure}",
                f"replay it with: make sim-cluster SEED={self.seed}",
            ]
        )


def new_plan(seed: int, trace: Trace | None = None) -> Plan | Storm:
    return Plan(seed, trace) if seed % METADATA_EVERY == 0 else Storm(seed, trace)


def run_seed(seed: int, trace: Trace | None = None) -> Outcome:
    began = time.process_time()
    plan = new_plan(seed, trace)
    failure: BaseException | None = None
    try:
        plan.world.run(plan.carry_out())
    except (Exception, BaseExceptionGroup) as error:
        failure = error
    machines = plan.cluster.machines.values()
    counts = {
        "seeds that count": int(plan.is_worth),
        "crashes": sum(machine.crashes for machine in machines),
        "crashes with a loss": sum(machine.lossy_crashes for machine in machines),
        "virtual seconds": int(plan.world.now()),
        **plan.totals,
    }
    return Outcome(seed, plan.worth, plan.is_worth, counts, failure, time.process_time() - began)


def run_seeds(seeds: Iterable[int]) -> Iterator[Outcome]:
    gc.collect()
    gc.freeze()
    try:
        for number, seed in enumerate(seeds, 1):
            yield run_seed(seed)
            if number % COLLECT_EVERY == 0:
                gc.collect()
    finally:
        gc.unfreeze()
