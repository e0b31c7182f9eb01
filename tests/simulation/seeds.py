"""The common part of all simulations: the outcome of a seed, and running many of them."""

import gc
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.simulation.trace import Trace
from tests.simulation.world import World

LAST_LINES = 40

Run = Callable[..., "Outcome"]  # of a seed, and a trace if it is to be kept


@dataclass
class Outcome:
    seed: int
    worth: Any  # what it has seen
    counts: dict[str, int] = field(default_factory=dict)
    failure: BaseException | None = None
    cpu_seconds: float = 0.0
    target: str = "sim"

    def explain(self, run: Run) -> str:
        """Why it failed, the end of its trace, and how to see the whole of it."""
        assert self.failure is not None
        trace = Trace()
        run(self.seed, trace)
        return "\n".join(
            [
                *trace.lines[-LAST_LINES:],
                "".join(traceback.format_exception(self.failure)),
                f"seed {self.seed} failed: {self.failure}",
                f"replay it with: make {self.target} SEED={self.seed}",
            ]
        )


class AnyPlan(Protocol):
    """The plan of one simulated world, and what was seen of it."""

    world: World

    async def carry_out(self) -> None: ...

    @property
    def worth(self) -> Any: ...

    @property
    def totals(self) -> dict[str, int]: ...


def run_plan(seed: int, make: Callable[[], AnyPlan], target: str) -> Outcome:
    """`target` is that of make which replays the seed."""
    began = time.process_time()
    plan = make()
    failure: BaseException | None = None
    try:
        plan.world.run(plan.carry_out())
    except (Exception, BaseExceptionGroup) as error:
        failure = error
    return Outcome(seed, plan.worth, plan.totals, failure, time.process_time() - began, target)


def hash_in_a_process(simulation: str, seed: int, hash_seed: int) -> str:
    """The hash of all that happens in a run of `tests.{simulation}`, in a process whose strings hash by `hash_seed`."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.{simulation}", str(seed), "--hash"],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=True,
        timeout=250,
    )
    return done.stdout


def run_all(seeds: Iterable[int], run: Run, collect_every: int) -> Iterator[Outcome]:
    """A run leaves machines without power behind, which hold each other: they are collected every few seeds."""
    gc.collect()
    gc.freeze()
    try:
        for number, seed in enumerate(seeds, 1):
            yield run(seed)
            if number % collect_every == 0:
                gc.collect()
    finally:
        gc.unfreeze()
