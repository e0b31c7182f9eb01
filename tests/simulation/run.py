"""One seed, one run: what it was worth, or how it failed."""

import time
from dataclasses import dataclass, field

from tests.simulation.plan import Plan, Worth
from tests.simulation.trace import Trace
from tests.simulation.world import World


@dataclass
class Outcome:
    seed: int
    worth: Worth
    counts: dict[str, int] = field(default_factory=dict)
    failure: BaseException | None = None
    cpu_seconds: float = 0.0


def run_seed(seed: int, trace: Trace | None = None) -> Outcome:
    began = time.process_time()
    world = World(seed, trace)
    plan = Plan(world)
    failure: BaseException | None = None
    try:
        world.run(plan.carry_out())
    except (Exception, BaseExceptionGroup) as error:
        failure = error
    counts = {
        **plan.play.counts,
        "starts": plan.machine.starts,
        "crashes": plan.machine.crashes,
    }
    return Outcome(seed, plan.worth, counts, failure, time.process_time() - began)
