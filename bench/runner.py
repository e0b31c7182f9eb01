"""Run one workload after the other, each in rounds over all systems.

Every system is started once and lives until the end of the run. A workload is first warmed up on each system
(`warmth`), then measured in rounds in which the systems take turns; each round begins with another one. So what is
compared was measured within seconds, on servers that are warm for this kind of work, and each is warmed once and not
once a round.

The others are idle meanwhile, which is not nothing: a measurement begins when all are at rest, and what the others
used while it lasted is stored beside it. What was measured is stored after every sample: a run that is broken off
has lost nothing.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.measure import LIMITS, Numbers, await_rest, machine_facts, metered
from bench.native import Unavailable
from bench.systems import System
from bench.warmth import Warming, WarmUp, warm
from bench.workloads import CLUSTER, WORKLOADS, Workload

RESULTS = Path(__file__).parent / "results"
LIMIT = "limit"
REST_TIMEOUT_S = 5
BY_NAME = {each.name: each for each in (*WORKLOADS, *CLUSTER)}


@dataclass
class Run:
    """The measurements, and all that a reader must know about them. They are stored as they are."""

    kind: str
    rounds: int
    scale: float
    machine: dict[str, str] = field(default_factory=dict)
    systems: dict[str, dict[str, Any]] = field(default_factory=dict)
    workloads: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    warmings: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)  # that each part of the run took
    samples: list[dict[str, Any]] = field(default_factory=list)
    part: str = ""  # what the name of a run has at its end that is not the whole of its kind

    @property
    def name(self) -> str:
        return self.kind + self.part

    def add(self, number: int, system: str, workload: str, numbers: Numbers, **facts: float) -> None:
        sample = {"round": number, "system": system, "workload": workload, "numbers": numbers}
        self.samples.append(sample | facts)

    def values(self, system: str, workload: str, figure: str) -> dict[int, float]:
        """Return the values by round; empty if the figure was not measured."""
        return {
            sample["round"]: sample["numbers"][figure]
            for sample in self.samples
            if (sample["system"], sample["workload"]) == (system, workload) and figure in sample["numbers"]
        }

    def store(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{self.name}.json"
        path.write_text(json.dumps(self.__dict__, indent=1, ensure_ascii=False) + "\n")
        return path


def load_run(path: Path) -> Run:
    """Load a run, without the fields of older runs that nobody shows any more."""
    known = {each.name for each in fields(Run)}
    return Run(**{name: value for name, value in json.loads(path.read_text()).items() if name in known})


class Runner:
    def __init__(self, run: Run, chosen: Sequence[Workload], scratch: Path, results: Path) -> None:
        self.run = run
        self.chosen = chosen
        self.scratch = Path(tempfile.mkdtemp(prefix="odradek-bench-", dir=scratch))
        self.results = results
        self.systems: list[System] = []
        self.warmed: set[tuple[str, str]] = set()  # system and workload
        self.progress = Progress(
            *(TextColumn("{task.description:<40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        )

    def measure(self, kinds: Sequence[type[System]]) -> None:
        self.run.machine = machine_facts(self.scratch)
        self.run.workloads = {each.name: each.title for each in self.chosen}
        systems: list[System] = []
        try:
            systems += self._available(kinds)
            with self.progress:
                self.task = self.progress.add_task("")
                self._start_all(systems)
                total = sum(self._rounds(each) * len(self._takers(each)) for each in self.chosen)
                self.progress.update(self.task, total=total)
                for workload in self.chosen:
                    self._measure_workload(workload)
        finally:
            for system in systems:
                system.remove()
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
                "runtime": system.runtime(),
                "durability": kind.durability,
                "settings": dict(kind.settings),
                "nodes": kind.node_count,
            }
        return systems

    def _start_all(self, systems: Sequence[System]) -> None:
        began = time.monotonic()
        for system in systems:
            self._describe(f"{system.title}: start")
            try:
                system.start()
                self.systems.append(system)
            except Exception as error:  # one system that fails must not take the others along
                self._fail(0, system, "start", error)
        self._took("(all systems start)", began)

    def _rounds(self, workload: Workload) -> int:
        return 1 if workload.once else self.run.rounds

    def _takers(self, workload: Workload) -> list[System]:
        return [system for system in self.systems if workload.applies(system)]

    def _measure_workload(self, workload: Workload) -> None:
        began = time.monotonic()
        takers = [system for system in self._takers(workload) if self._is_warmed(system, workload)]
        measured = time.monotonic()
        for number in range(self._rounds(workload)):
            self._limits(number, workload)
            for place in range(len(takers)):
                system = takers[(number + place) % len(takers)]
                if system in self.systems:
                    self._measure(number, system, workload)
        self._took(workload.name, began, measured)

    # Warm-up

    def _is_warmed(self, system: System, workload: Workload) -> bool:
        """Warm it up; false if that failed, so that it is not measured either."""
        plan = workload.warm_up
        if plan is None or (system.name, workload.name) in self.warmed:
            return True
        self.warmed.add((system.name, workload.name))
        if plan.after and not self._is_warmed(system, BY_NAME[plan.after]):
            return False
        self._describe(f"{system.title}: {workload.name}, warm-up")
        warming = Warming(system.name, workload.name, plan.piece, has_to_settle=system.compiles_as_it_runs)
        try:
            self._warm(system, workload, plan, warming)
        except Exception as error:
            self._fail(0, system, f"{workload.name}, warm-up", error)
            return False
        finally:
            self.run.warmings.append(warming.as_stored())
        return True

    def _warm(self, system: System, workload: Workload, plan: WarmUp, warming: Warming) -> None:
        run, scale = plan.run or workload.run, plan.share * self.run.scale
        if self.run.scale == 1:
            warm(warming, plan, lambda: run(system, scale))
        else:  # one piece will do
            run(system, scale)

    # Measurement

    def _limits(self, number: int, workload: Workload) -> None:
        if workload.name in LIMITS:
            self._describe(f"round {number + 1}  this machine's own limit")
            for name, numbers in LIMITS[workload.name](self.scratch, self.run.scale).items():
                self.run.add(number, LIMIT, name, numbers)

    def _measure(self, number: int, system: System, workload: Workload) -> None:
        self._describe(f"round {number + 1}  {system.title}: {workload.name}")
        others = [pid for each in self.systems if each is not system for pid in each.pids()]
        await_rest([*others, *system.pids()], REST_TIMEOUT_S)
        os.sync()
        began = time.monotonic()
        try:
            with metered(others) as idle:
                numbers = workload.run(system, self.run.scale)
            used_ms_s = (idle.user_s + idle.kernel_s) * 1000 / (time.monotonic() - began)
            self.run.add(number, system.name, workload.name, numbers, others_ms_s=round(used_ms_s, 1))
        except Exception as error:  # one workload that fails must not take the hour before it along
            self._fail(number, system, workload.name, error)
        self.run.store(self.results)
        self.progress.advance(self.task)

    # What is told

    def _fail(self, number: int, system: System, what: str, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        self.run.failures.append({"round": number, "system": system.name, "workload": what, "reason": reason})
        self.progress.console.print(f"failed: {system.title}, {what}: {reason}", markup=False)
        if system in self.systems and not system.is_running:
            self.systems.remove(system)  # nothing would come of it but time-outs

    def _describe(self, what: str) -> None:
        self.progress.update(self.task, description=what)

    def _took(self, part: str, began: float, measured: float | None = None) -> None:
        """Store and print how long a part of the run took: its warm-up until `measured`, then its rounds."""
        now = time.monotonic()
        warm_up_s, rounds_s = (0.0, now - began) if measured is None else (measured - began, now - measured)
        self.run.seconds[part] = {"warm_up_s": round(warm_up_s, 1), "rounds_s": round(rounds_s, 1)}
        self.run.store(self.results)
        text = (
            f"{part}: warm-up {warm_up_s:.0f} s, then {rounds_s:.0f} s"
            if measured
            else f"{part}: {rounds_s:.0f} s"
        )
        self.progress.console.print(text, markup=False, highlight=False)
