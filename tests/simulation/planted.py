"""Bugs that are planted in the product, to show that the simulation and the scripts would find them.

    python -m tests.simulation.planted                 find the first seed that catches each, and print the table
    python -m tests.simulation.planted NAME [SEED]     plant one and run it: at its seed, or at this one

A bug of `SCRIPTED` is caught by the script of its number in `test_scenarios.py`; one of `SIMULATED` by the random
simulation, with the checkers that it always has.
"""

import importlib
import sys
from typing import NamedTuple

from tests.simulation.mutation import Mutation, plant

SCENARIOS = "tests.simulation.test_scenarios"


class Scripted(NamedTuple):
    script: str  # how its test's name begins
    bug: str
    mutation: Mutation


SCRIPTED = [
    Scripted(
        "test_16",
        "checkpoints of an earlier log of the same name are kept when a log is created",
        Mutation("storage.store", "        self._forget_earlier(topic_partition)\n", ""),
    ),
    Scripted(
        "test_17",
        "recovery believes gaps only in compacted topics",
        Mutation(
            "storage.recovery",
            "return not self.opening.strict and (",
            "return self.config.compact and not self.opening.strict and (",
        ),
    ),
    Scripted(
        "test_18",
        "the metadata log is recovered as any other: cut at the first damage",
        Mutation(
            "metadata.log", "recovery_point=recovery_point, strict=True)", "recovery_point=recovery_point)"
        ),
    ),
    Scripted(
        "test_19",
        "a parked fetch that was answered goes on waiting for its other partitions",
        Mutation(
            "api.fetch", "watched, self._watched = self._watched, []", "watched, self._watched = [], []"
        ),
    ),
    Scripted(
        "test_20",
        "DeleteRecords leaves the log start to the next checkpoint",
        Mutation(
            "storage.store",
            "                self._start_offsets.write(self._log_start_offsets() | moved)",
            "                pass",
        ),
    ),
    Scripted(
        "test_21",
        "a retired segment always gets the name with `.deleted` and no number",
        Mutation("storage.retired", "        if name in self._segments:", "        if False:"),
    ),
    Scripted(
        "test_22",
        "an append that lacks a descriptor counts as a failed disk",
        Mutation(
            "storage.log",
            """        except CannotOpen as error:
            raise self._storage_error("append", error) from error
""",
            """        except CannotOpen as error:
            self.failed = True
            raise self._storage_error("append", error) from error
""",
        ),
    ),
    Scripted(
        "test_23",
        "the attempt to create `__consumer_offsets` is remembered when it failed",
        Mutation("broker.groups", "        finally:\n            self._creating = None\n", ""),
    ),
    Scripted(
        "test_24",
        "a request that is handled in steps is handled in one turn",
        Mutation("api.turns", "            while self.clock() < end:", "            while end:"),
    ),
    Scripted(
        "test_25",
        "a leader enters its epoch with its first append only",
        Mutation(
            "replication.partition",
            "        self.log.leader_epochs.begin(leader_epoch, self.log.end_offset)\n",
            "",
        ),
    ),
]


def run_script(planted: Scripted) -> str:
    """How the script fails; nothing if it does not. In a fresh process only."""
    plant([planted.mutation])
    scenarios = importlib.import_module(SCENARIOS)
    (script,) = [function for name, function in vars(scenarios).items() if name.startswith(planted.script)]
    try:
        script()
    except BaseException as error:  # what pytest raises is no Exception
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def main() -> int:
    (name,) = sys.argv[1:]
    (planted,) = [item for item in SCRIPTED if item.script == name]
    caught = run_script(planted)
    print(caught or "NOT CAUGHT")
    return 0 if caught else 1


if __name__ == "__main__":
    sys.exit(main())
