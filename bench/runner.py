"""In which order, and how often: rounds of all systems, one after the other, each alone on the machine.

A round starts every system in turn with an empty directory, warms it up, runs all workloads on it and stops
it. Rounds begin with another system each time, so that a machine that slows down over the hour slows down for
all. What was measured is stored after every workload: a run that is broken off has lost nothing.

The warm-up repeats a short load until, twice in a row, none of its rates has risen by more than 5 %; Java
needs that, and what is good for one is done for all.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import workloads
from bench.measure import Numbers, machine_facts, machine_limits
from bench.native import Unavailable
from bench.systems import System
from bench.workloads import Workload

RESULTS = Path(__file__).parent / "results"
LIMIT = "limit"
STILL_RISES = 1.05
STEADY_RUNS = 2
WARM_UP_RUNS = 12
WARM_UP_SCALE = 0.2


@dataclass
class Run:
    """What was measured, and all that a reader must know about it. It is stored as it is."""

    kind: str
    rounds: int
    scale: float
    machine: dict[str, str] = field(default_factory=dict)
    systems: dict[str, dict[str, Any]] = field(default_factory=dict)
    workloads: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    warm_ups: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)

    def add(self, number: int, system: str, workload: str, numbers: Numbers) -> None:
        sample = {"round": number, "system": system, "workload": workload, "numbers": numbers}
        self.samples.append(sample)

    def values(self, system: str, workload: str, figure: str) -> dict[int, float]:
        """By round; empty if it was not measured."""
        return {
            sample["round"]: sample["numbers"][figure]
            for sample in self.samples
            if (sample["system"], sample["workload"]) == (system, workload) and figure in sample["numbers"]
        }

    def store(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{self.kind}.json"
        path.write_text(json.dumps(self.__dict__, indent=1, ensure_ascii=False) + "\n")
        return path


def load_run(path: Path) -> Run:
    return Run(**json.loads(path.read_text()))


class Runner:
    def __init__(self, run: Run, chosen: Sequence[Workload], scratch: Path, results: Path) -> None:
        self.run = run
        self.chosen = chosen
        self.scratch = Path(tempfile.mkdtemp(prefix="odradek-bench-", dir=scratch))
        self.results = results
        self.progress = Progress(
            *(TextColumn("{task.description:<40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        )

    def measure(self, kinds: Sequence[type[System]]) -> None:
        self.run.machine = machine_facts(self.scratch)
        self.run.workloads = {each.name: each.title for each in self.chosen}
        try:
            systems = self._available(kinds)
            with self.progress:
                self.task = self.progress.add_task("", total=self._total(systems))
                for number in range(self.run.rounds):
                    self._limits(number)
                    for place in range(len(systems)):
                        self._measure_system(number, systems[(number + place) % len(systems)])
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _available(self, kinds: Sequence[type[System]]) -> list[System]:
        systems = []
        for kind in kinds:
            try:
                system = kind(self.scratch)
            except Unavailable as error:
                self.run.left_out[kind.name] = str(error)
                continue
            systems.append(system)
            self.run.systems[kind.name] = {
                "title": kind.title,
                "version": system.version(),
                "durability": kind.durability,
                "settings": dict(kind.settings),
                "nodes": kind.node_count,
            }
        return systems

    def _workloads(self, number: int, system: System) -> list[Workload]:
        return [each for each in self.chosen if each.applies(system) and (number == 0 or not each.once)]

    def _total(self, systems: Sequence[System]) -> int:
        return sum(len(self._workloads(n, system)) for n in range(self.run.rounds) for system in systems)

    def _limits(self, number: int) -> None:
        self.progress.update(self.task, description="this machine's own limit")
        for workload, numbers in machine_limits(self.scratch, self.run.scale).items():
            self.run.add(number, LIMIT, workload, numbers)

    def _measure_system(self, number: int, system: System) -> None:
        todo = self._workloads(number, system)
        early = [each for each in todo if each.before_load]
        late = [each for each in todo if not each.before_load]
        try:
            self._describe(number, system, "start")
            system.start()
            self._measure_all(number, system, early)
            if late:
                self._describe(number, system, "warm-up")
                self._warm_up(number, system)
            self._measure_all(number, system, late)
        except Exception as error:  # one system that fails must not take the hour before it along
            self._fail(number, system, "start and warm-up", error)
        finally:
            system.remove()

    def _describe(self, number: int, system: System, what: str) -> None:
        self.progress.update(self.task, description=f"round {number + 1}  {system.title}: {what}")

    def _measure_all(self, number: int, system: System, todo: Sequence[Workload]) -> None:
        for workload in todo:
            self._describe(number, system, workload.name)
            os.sync()
            try:
                self.run.add(number, system.name, workload.name, workload.run(system, self.run.scale))
            except Exception as error:  # nor must one workload
                self._fail(number, system, workload.name, error)
            self.run.store(self.results)
            self.progress.advance(self.task)

    def _fail(self, number: int, system: System, what: str, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        self.run.failures.append({"round": number, "system": system.name, "workload": what, "reason": reason})

    def _warm_up(self, number: int, system: System) -> None:
        """Rates of bulk and of small requests, until none of them rises any more."""
        best: Numbers = {}
        runs, steady = 0, 0
        while steady < STEADY_RUNS and runs < (WARM_UP_RUNS if self.run.scale == 1 else 1):
            rates = warm_up_rates(system, self.run.scale * WARM_UP_SCALE)
            rises = any(rate > best.get(name, 0.0) * STILL_RISES for name, rate in rates.items())
            best = {name: max(rate, best.get(name, 0.0)) for name, rate in rates.items()}
            runs, steady = runs + 1, 0 if rises else steady + 1
        self.run.warm_ups.append({"round": number, "system": system.name, "runs": runs})


def warm_up_rates(system: System, scale: float) -> Numbers:
    replication = min(3, system.node_count)
    numbers = workloads.bulk(system, scale, replication=replication)
    numbers |= workloads.one_message(system, scale, replication)
    return {name: rate for name, rate in numbers.items() if workloads.is_rate(name)}
