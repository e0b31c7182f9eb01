"""One seed, one run of the quorum: what happened in it, or how it failed."""

import gc
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field

from tests.quorum.simulation import Simulation

SEEDS = 360  # that `make test-all` runs; `make test` runs half of them
COLLECT_EVERY = 20  # seeds: machines without power hold each other
LAST_LINES = 60


@dataclass
class Outcome:
    seed: int
    counts: Counter = field(default_factory=Counter)
    failure: BaseException | None = None
    cpu_seconds: float = 0.0

    @property
    def is_worth_something(self):
        """A seed counts if somebody was elected after a crash, and something was acknowledged."""
        return bool(self.counts["elections after a crash"] and self.counts["acknowledged"])

    def explain(self):
        """Why it failed, the end of its trace, and how to see the whole of it."""
        lines = []
        run_seed(self.seed, lines.append)
        return "\n".join(
            [
                *lines[-LAST_LINES:],
                "".join(traceback.format_exception(self.failure)),
                f"seed {self.seed} failed: {self.failure}",
                f"replay it with: make sim-quorum SEED={self.seed}",
            ]
        )


def run_seed(seed, show=None):
    began = time.process_time()
    outcome = Outcome(seed)
    simulation = None
    try:
        simulation = Simulation(seed, show)
        simulation.run()
    except Exception as error:
        outcome.failure = error
    if simulation is not None:
        outcome.counts = simulation.totals()
    outcome.cpu_seconds = time.process_time() - began
    return outcome


def run_seeds(seeds):
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for number, seed in enumerate(seeds, 1):
            yield run_seed(seed)
            if number % COLLECT_EVERY == 0:
                gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()


def hunt(kind):
    """Run the seeds that `make test-all` runs; they are all of one kind."""
    assert not kind
    return run_seeds(range(SEEDS))


class Totals:
    """The totals of what some seeds have seen together."""

    def __init__(self):
        self.seeds = self.worthy = 0
        self.cpu_seconds = 0.0
        self.counts = Counter()
        self.seeds_with = Counter()

    def add(self, outcome):
        self.seeds += 1
        self.worthy += outcome.is_worth_something
        self.cpu_seconds += outcome.cpu_seconds
        self.counts.update(outcome.counts)
        self.seeds_with.update(what for what, count in outcome.counts.items() if count)

    def share(self, what):
        """The share of the seeds that have seen this."""
        return self.seeds_with[what] / max(self.seeds, 1)

    def __str__(self):
        counts = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        each = self.cpu_seconds / max(self.seeds, 1)
        return f"{self.seeds} seeds, {self.worthy} of them count, {each:.2f} s of CPU each: {counts}"
