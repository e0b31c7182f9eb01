"""One seed, one run of a cluster: what it was worth, or how it failed."""

import gc
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.cluster.plan import Plan, Worth
from tests.simulation.trace import Trace

COLLECT_EVERY = 5  # seeds: a run leaves machines without power behind, which hold each other
LAST_LINES = 40


@dataclass
class Outcome:
    seed: int
    worth: Worth
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


def run_seed(seed: int, trace: Trace | None = None) -> Outcome:
    began = time.process_time()
    plan = Plan(seed, trace)
    failure: BaseException | None = None
    try:
        plan.world.run(plan.carry_out())
    except (Exception, BaseExceptionGroup) as error:
        failure = error
    machines = plan.cluster.machines.values()
    counts = {
        "acknowledged changes": plan.worth.acknowledged,
        "changes in doubt": sum(operator.in_doubt for operator in plan.operators),
        "refusals by former controllers": sum(operator.refused_late for operator in plan.operators),
        "crashes": sum(machine.crashes for machine in machines),
        "crashes with a loss": sum(machine.lossy_crashes for machine in machines),
        "refusals by controllers that were not active": plan.prober.refused,
        "virtual seconds": int(plan.world.now()),
        **plan.chronicle.counts,
        **plan.counts,
    }
    return Outcome(seed, plan.worth, counts, failure, time.process_time() - began)


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
