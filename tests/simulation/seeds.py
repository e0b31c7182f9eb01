"""What simulations of every kind share: the outcome of a seed, and running many of them."""

import gc
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.trace import Trace

LAST_LINES = 40

Run = Callable[..., "Outcome"]  # of a seed, and a trace if it is to be kept


@dataclass
class Outcome:
    seed: int
    worth: Any  # what it has seen
    counts: dict[str, int] = field(default_factory=dict)
    failure: BaseException | None = None
    cpu_seconds: float = 0.0
    target: str = "sim"  # of make

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
