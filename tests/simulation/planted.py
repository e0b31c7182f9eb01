"""Bugs that are planted in the product, to show that the simulation and the scripts would find them.

    python -m tests.simulation.planted                 find the first seed that catches each, and print the table
    python -m tests.simulation.planted NAME            plant one; run its script, or the simulation from its seed on
    python -m tests.simulation.planted NAME FIRST      find the first seed from this one on that catches it

A bug of `SCRIPTED` is caught by the script of its number in `test_scenarios.py`; one of `SIMULATED` by the random
simulation, with the checkers that it always has.
"""

import importlib
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.simulation.mutation import Mutation, plant

SCENARIOS = "tests.simulation.test_scenarios"
SIMULATION = "tests.simulation.run"


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
        "recovery accepts gaps only in compacted topics",
        Mutation(
            "storage.log.recovery",
            "return not self.opening.strict and (",
            "return self.config.compact and not self.opening.strict and (",
        ),
    ),
    Scripted(
        "test_18",
        "the metadata log is recovered as any other: cut at the first damage",
        Mutation("raft.store", "            strict=True,\n", ""),
    ),
    Scripted(
        "test_19",
        "a parked fetch keeps waiting for its other partitions after its response was sent",
        Mutation(
            "api.fetch.parked",
            "watches, self._watches = self._watches, []",
            "watches, self._watches = [], []",
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
        Mutation("storage.segments.retired", "        if name in self._segments:", "        if False:"),
    ),
    Scripted(
        "test_22",
        "an append that lacks a descriptor counts as a failed disk",
        Mutation(
            "storage.log.log",
            """            if not isinstance(error, CannotOpen):
                self._undo_write()
            raise self._health.error("append", error) from error
""",
            """            if isinstance(error, CannotOpen):
                self._health.fail()
            else:
                self._undo_write()
            raise self._health.error("append", error) from error
""",
        ),
    ),
    Scripted(
        "test_23",
        "a failed attempt to create `__consumer_offsets` is never repeated",
        Mutation("services.shards", "        finally:\n            self._creating = None\n", ""),
    ),
    Scripted(
        "test_24",
        "a request that is handled in steps is handled in one turn",
        Mutation("serving.turns", "            while self.clock() < end:", "            while end:"),
    ),
    Scripted(
        "test_25",
        "a leader enters its epoch with its first append only",
        Mutation(
            "replication.leader", "        log.leader_epochs.begin(self.leader_epoch, log.end_offset)\n", ""
        ),
    ),
]


class Simulated(NamedTuple):
    name: str
    bug: str
    mutations: list[Mutation]
    seed: int  # the first of the simulation that catches it


SIMULATED = [
    Simulated(
        "acks-all-before-the-sync",
        "acks=all is acknowledged before the sync",
        [
            Mutation(
                "api.produce.production",
                "leader.when_committed(offset, partial(self._committed, leader))",
                "self._committed(leader, ErrorCode.NONE)",
            )
        ],
        seed=1,
    ),
    Simulated(
        "window-forgotten",
        "the five-batch window of a producer is forgotten at restart: only its newest batch is known",
        [
            Mutation(
                "storage.producers.replay",
                "    producers.replay_batch(header, header.base_offset, marker)\n",
                "    producers.replay_batch(header, header.base_offset, marker)\n"
                "    del producers.by_id[header.producer_id].batches[:-1]\n",
            )
        ],
        seed=21,
    ),
    Simulated(
        "duplicate-at-a-new-offset",
        "the response to a duplicate has a new offset",
        [
            Mutation(
                "storage.log.log",
                "                return duplicate_of(duplicate)",
                "                return duplicate_of(duplicate)._replace(base_offset=self.end_offset)",
            )
        ],
        seed=0,
    ),
    Simulated(
        "offset-commit-before-the-write",
        "an offset commit is acknowledged before it is on disk",
        [
            Mutation(
                "coordinators.runner",
                "        self._journal.commit(last_offset, self._committed)",
                "        self._journal.commit(last_offset, lambda error: None)\n"
                "        self._carry_out(self._shard.committed(last_offset + 1))",
            )
        ],
        seed=8,
    ),
    Simulated(
        "high-watermark-beyond-the-sync",
        "the high watermark moves beyond the synced offset",
        [
            Mutation(
                "replication.leader",
                "reached = log.synced_offset if self.settings.sync_commit else log.end_offset",
                "reached = log.end_offset",
            )
        ],
        seed=15,
    ),
    Simulated(
        "append-during-the-sync",
        "what is appended while a sync is under way counts as synced with it",
        [
            Mutation(
                "storage.log.log",
                "        self._row.durability.complete(ticket, error)",
                "        ticket.offset = max(ticket.offset, self.end_offset)\n"
                "        self._row.durability.complete(ticket, error)",
            )
        ],
        seed=15,
    ),
    Simulated(
        "torn-batch-kept",
        "recovery keeps a torn batch",
        [
            Mutation(
                "storage.log.scan",
                "header_at(self._bytes, position, self._size)",
                "header_at(self._bytes, position, self._size + (1 << 20))",
            ),
            Mutation(
                "storage.log.recovery",
                "scan.is_intact(position, header) and self._has_its_epoch(header)",
                "self._has_its_epoch(header)",
            ),
        ],
        seed=5,
    ),
    Simulated(
        "recovery-point-before-the-sync",
        "the recovery point is written before the sync",
        [
            Mutation(
                "storage.store",
                "        return min(log.synced_offset, committed)\n",
                "        return log.end_offset\n",
            )
        ],
        seed=15,
    ),
    Simulated(
        "fetch-answered-twice",
        "a parked fetch gets two responses",
        [
            Mutation(
                "api.fetch.parked",
                "watches, self._watches = self._watches, []",
                "watches, self._watches = [], []",
            )
        ],
        seed=0,
    ),
    Simulated(
        "deleted-log-opened-again",
        "a deleted topic's log is opened for the new one of its name",
        [
            Mutation(
                "services.local_partitions",
                "        if found is not None and found is self._doomed.get(name):",
                "        if False:",
            ),
            Mutation(
                "services.local_partitions",
                "        if found.topic_id != topic_id:\n",
                "        if False:\n",
            ),
            Mutation(
                "services.local_partitions",
                "        self._remove_doomed()\n        self._open_soon()\n\n    def reconfigure",
                "        self._open_soon()\n\n    def reconfigure",
            ),
        ],
        seed=0,
    ),
    Simulated(
        "group-loaded-twice",
        "the groups of a partition are loaded twice, and two coordinators work on them",
        [
            Mutation(
                "services.shards", "if self._is_behind or names_topic(delta, self._topic.name):", "if True:"
            ),
            Mutation(
                "services.shards",
                "            self._shard(index)\n",
                "            self.new_role(self._services.partitions.replicas.get(self._topic.name, index))\n",
            ),
            Mutation(
                "services.shards",
                """        if present is not None and present.leader is replica.leader:
            return
        if present is not None:
            del self._shards[index]
            present.runner.resign("its partition has a new leader epoch")
""",
                "",
            ),
        ],
        seed=0,
    ),
    Simulated(
        "member-expired-by-a-jump",
        "a member expires when the clock is set",
        [
            Mutation(
                "coordinators.runner",
                "self._shard.tick(self._host.steady_ms())",
                "self._shard.tick(max(self._host.steady_ms(), self._host.now_ms()))",
            )
        ],
        seed=1,
    ),
    Simulated(
        "swap-without-directory-sync",
        "compaction swaps segments without syncing the directory",
        [
            Mutation(
                "storage.segments.swap",
                "        names.sync()\n        retire_old()\n        names.sync()\n",
                "        retire_old()\n",
            ),
            Mutation(
                "storage.segments.swap",
                '            segment.rename(SWAP_SUFFIX, "")\n        names.sync()',
                '            segment.rename(SWAP_SUFFIX, "")',
            ),
        ],
        seed=1,
    ),
]
SEEDS = 500  # within so many every bug has to be caught


def run_script(planted: Scripted) -> str:
    """How the script fails; nothing if it does not. In a fresh process only."""
    plant([planted.mutation])
    scenarios = importlib.import_module(SCENARIOS)
    (script,) = [function for name, function in vars(scenarios).items() if name.startswith(planted.script)]
    try:
        script()
    except BaseException as error:  # what pytest raises is no Exception
        return in_a_line(error)
    return ""


def run_seeds(
    planted: Simulated, seeds: Iterable[int], simulation_module: str = SIMULATION
) -> tuple[int, str] | None:
    """The first seed that fails, and how. In a fresh process only."""
    plant(planted.mutations)
    simulation = importlib.import_module(simulation_module)
    for outcome in simulation.run_seeds(seeds):
        if outcome.failure is not None:
            return outcome.seed, in_a_line(outcome.failure)
    return None


def in_a_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def find(name: str, module: str) -> str:
    """Search in a process of its own; what that printed."""
    command = [sys.executable, "-m", module, name, "0"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def print_table(table: Sequence[Simulated], module: str) -> None:
    print("| planted bug | caught at seed | as |")
    print("|---|---|---|")
    for planted in table:
        seed, _, reason = find(planted.name, module).partition(" ")
        print(f"| {planted.bug} | {seed} | {reason} |", flush=True)


def main(arguments: list[str]) -> int:
    """Exits with 0 if the bug was caught."""
    if not arguments:
        print_table(SIMULATED, "tests.simulation.planted")
        return 0
    name, *first = arguments
    for scripted in SCRIPTED:
        if scripted.script == name:
            caught = run_script(scripted)
            print(caught or "not caught")
            return 0 if caught else 1
    (planted,) = [item for item in SIMULATED if item.name == name]
    # The seed moves when anything changes the course of a run, so there are others after it.
    seeds = range(int(first[0]), SEEDS) if first else [planted.seed, *range(SEEDS)]
    found = run_seeds(planted, seeds)
    print(*(found or ("not caught",)))
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
