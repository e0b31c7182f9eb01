"""One seed, one run: what it was worth, or how it failed."""

from collections.abc import Iterable, Iterator

from tests.simulation.plan import Plan
from tests.simulation.seeds import Outcome, run_all, run_plan
from tests.simulation.trace import Trace
from tests.simulation.world import World

SEEDS = 210  # that `make test-all` runs; `make test` runs half of them
COLLECT_EVERY = 10  # seeds


def run_seed(seed: int, trace: Trace | None = None) -> Outcome:
    return run_plan(seed, lambda: Plan(World(seed, trace)), "sim")


def run_seeds(seeds: Iterable[int]) -> Iterator[Outcome]:
    return run_all(seeds, run_seed, COLLECT_EVERY)


def hunt(kind: str) -> Iterator[Outcome]:
    """Run the seeds that `make test-all` runs; they are all of one kind."""
    assert not kind
    return run_seeds(range(SEEDS))


class Totals:
    """The totals of what some seeds have seen together."""

    def __init__(self) -> None:
        self.seeds = 0
        self.cpu_seconds = 0.0
        self._counts: dict[str, int] = {}
        self._seeds_with: dict[str, int] = {}

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.cpu_seconds += outcome.cpu_seconds
        for what, count in outcome.counts.items():
            self._counts[what] = self._counts.get(what, 0) + count
            self._seeds_with[what] = self._seeds_with.get(what, 0) + (count > 0)

    def share(self, what: str) -> float:
        """The share of the seeds that have seen this."""
        return self._seeds_with.get(what, 0) / max(self.seeds, 1)

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {what}" for what, count in sorted(self._counts.items()))
        return f"{self.seeds} seeds, {self.cpu_seconds / max(self.seeds, 1):.2f} s of CPU each: {counts}"
