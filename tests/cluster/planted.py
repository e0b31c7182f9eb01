"""Bugs that are planted in the product, to show that the simulation of clusters would find them.

python -m tests.cluster.planted                 find the first seed that catches each, and print the table
python -m tests.cluster.planted NAME            plant one, and run the simulation from its seed on
python -m tests.cluster.planted NAME FIRST      find the first seed from this one on that catches it
"""

import subprocess
import sys
from typing import NamedTuple

from tests.simulation.mutation import Mutation, plant

MAX_SEEDS = 500


class Planted(NamedTuple):
    name: str
    bug: str
    seed: int  # that catches it
    mutations: tuple[Mutation, ...]


PLANTED = [
    Planted(
        "snapshot",
        "a snapshot has no records of configs",
        0,
        (
            Mutation(
                "metadata.snapshot",
                '    "configs": _write_configs,\n',
                '    "configs": lambda image: iter(()),\n',
            ),
        ),
    ),
    Planted(
        "stale",
        "a node decides though it is not the active controller",
        0,
        (
            Mutation(
                "services.metadata",
                """        if not self.quorum.is_active:
            error = KafkaError""",
                """        if False:
            error = KafkaError""",
            ),
        ),
    ),
    Planted(
        "early",
        "the controller's image is applied before the commit",
        0,
        (
            Mutation(
                "metadata.log",
                "while self._pending and self._pending[0].last_offset < self.high_watermark:",
                "while self._pending:",
            ),
        ),
    ),
    Planted(
        "response",
        "a response is given before the commit",
        0,
        (
            Mutation(
                "services.quorum",
                """        if self._led.epoch == epoch and self._led.offset >= offset:
            return
        if not self.log.raft""",
                """        if self.log.newest.offset >= offset:
            return
        if not self.log.raft""",
            ),
        ),
    ),
    Planted(
        "follower",
        "a follower folds all that it has fetched, committed or not",
        0,
        (
            Mutation(
                "metadata.log",
                """        if self.image.offset + 1 < self.high_watermark:
            read = self._reader.read(self.image, self.high_watermark)""",
                """        known = self.high_watermark if self.raft.is_leader else self.end_offset
        if self.image.offset + 1 < known:
            read = self._reader.read(self.image, known)""",
            ),
        ),
    ),
    Planted(
        "bootstrap",
        "the first controller does not write the records of a new cluster",
        0,
        (
            Mutation(
                "services.metadata",
                "            self._activate(self._append)\n",
                "            pass\n",
            ),
        ),
    ),
]


def search(planted: Planted, first: int) -> int:
    plant(planted.mutations)
    from tests.cluster.run import run_seeds
    from tests.simulation.connection import Violation

    for outcome in run_seeds(range(first, first + MAX_SEEDS)):
        if outcome.failure is not None and not isinstance(outcome.failure, Violation):
            raise outcome.failure  # of the simulation itself: nothing was caught
        if outcome.failure is not None:
            print(f"{planted.name}: seed {outcome.seed} catches that {planted.bug}: {outcome.failure}")
            return 0
    print(f"{planted.name}: no seed from {first} on catches that {planted.bug}")
    return 1


def main(arguments: list[str]) -> int:
    if not arguments:
        calls = [[sys.executable, "-m", "tests.cluster.planted", item.name, "0"] for item in PLANTED]
        return max(subprocess.run(call).returncode for call in calls)
    (planted,) = [item for item in PLANTED if item.name == arguments[0]]
    return search(planted, int(arguments[1]) if len(arguments) > 1 else planted.seed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
