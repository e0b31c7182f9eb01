"""Two versions of the code beside each other: what a change has cost a node and a cluster of three, or gained.

    git worktree add ../before COMMIT
    python -m bench.compare ../before

Both run on the same machine in turn, again and again, and the order changes with each round: what else the machine
does meets both alike. CPU is compared, because it depends least on that, and for one request at a time also how long
half of them take. The load generators, and all of this program but the brokers, are those of the version that
`python -m bench.compare` belongs to.

A start is measured on a directory that was closed cleanly, with the code already compiled: until the broker announces
itself, and until it is at rest, when what it imports ahead is imported.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import workloads
from bench.measure import Numbers, await_rest, memory_mb, ratio_of, spread_of
from bench.systems import Odradek, UnsyncedOdradekCluster

HERE = Path(__file__).parent.parent
STARTS = 5  # in a round, of which the median counts
WARM_UP_SCALE = 0.2
FIGURES = {
    "start_ms": ("start, CPU until it announces itself", "ms"),
    "rest_ms": ("start, CPU until it is at rest", "ms"),
    "memory_mb": ("memory at rest", "MB"),
    "synced_us": ("one message a request, synced, CPU", "µs"),
    "unsynced_us": ("one message a request, not synced, CPU", "µs"),
    "bulk_s_gb": ("bulk produce of 1 KB, not synced, CPU", "s/GB"),
    "synced_p50_us": ("one request at a time, synced, p50", "µs"),
    "unsynced_p50_us": ("one request at a time, not synced, p50", "µs"),
    "replicated_us": ("replication 3, one message a request, CPU of all", "µs"),
    "replicated_bulk_s_gb": ("replication 3, bulk produce of 1 KB, CPU of all", "s/GB"),
    "replicated_p50_us": ("replication 3, one request at a time, p50", "µs"),
}
PARTS = ("start", "requests", "replicated")


def environ_of(worktree: Path) -> Mapping[str, str]:
    """The environment in which Python finds the sources of a worktree."""
    return {**os.environ, "PYTHONPATH": str(worktree / "src")}


class Version(Odradek):
    """A broker from the sources of one worktree."""

    def __init__(self, scratch: Path, worktree: Path, is_synced: bool) -> None:
        self.name = f"{worktree.name}-{is_synced}"  # type: ignore[misc]
        super().__init__(scratch)
        self.settings = {"log.sync.commit": str(is_synced).lower()}  # type: ignore[misc]
        self._worktree = worktree
        self.home.mkdir()

    def environ(self) -> Mapping[str, str]:
        return environ_of(self._worktree)

    def run_process(self, command: list[str]) -> subprocess.Popen[bytes]:
        return super().run_process([*command, "--json"])

    def announced_cpu_ms(self) -> float:
        """Start it, and take its CPU time when it says that it listens."""
        announced = self.log().count("bootstrap")
        self.processes = self.spawn()
        while self.log().count("bootstrap") == announced:
            if self.processes[0].poll() is not None:
                raise SystemExit(f"{self.title} did not start: {self.log()[-400:].strip()}")
            time.sleep(0.001)
        return self.cpu_ms()

    def cpu_ms(self) -> float:
        """Its process's CPU time, with threads that have ended, by the clock that Linux keeps for each process."""
        return time.clock_gettime(~self.processes[0].pid << 3 | 2) * 1000


class ClusterVersion(UnsyncedOdradekCluster):
    """Three nodes from the sources of one worktree."""

    def __init__(self, scratch: Path, worktree: Path) -> None:
        self.name = f"{worktree.name}-cluster"  # type: ignore[misc]
        super().__init__(scratch)
        self._worktree = worktree
        self.home.mkdir()

    def environ(self) -> Mapping[str, str]:
        return environ_of(self._worktree)


def starts(version: Version) -> Numbers:
    samples = []
    for number in range(STARTS + 1):
        announced = version.announced_cpu_ms()
        await_rest(version.pids())
        figures = {"start_ms": announced, "rest_ms": version.cpu_ms(), "memory_mb": memory_mb(version.pids())}
        version.stop()
        if number:  # the first one has compiled the code, and made the directory
            samples.append(figures)
    return {name: spread_of([sample[name] for sample in samples]).median for name in samples[0]}


def requests(version: Version, scale: float) -> Numbers:
    try:
        version.start()
        workloads.one_message(version, WARM_UP_SCALE * scale)
        cpu = request_cpu_us(workloads.one_message(version, scale))
        p50 = workloads.latency(version, scale)["p50_us"]
        if version.settings["log.sync.commit"] == "true":
            return {"synced_us": cpu, "synced_p50_us": p50}
        bulk = bulk_cpu_s_gb(workloads.bulk(version, scale))
        return {"unsynced_us": cpu, "unsynced_p50_us": p50, "bulk_s_gb": bulk}
    finally:
        version.stop()


def replicated(version: ClusterVersion, scale: float) -> Numbers:
    version.prepare()
    try:
        version.start()
        workloads.one_message(version, WARM_UP_SCALE * scale, replication=3)
        one_message = workloads.one_message(version, scale, replication=3)
        return {
            "replicated_us": request_cpu_us(one_message),
            "replicated_p50_us": workloads.latency(version, scale, replication=3)["p50_us"],
            "replicated_bulk_s_gb": bulk_cpu_s_gb(workloads.bulk(version, scale, replication=3)),
        }
    finally:
        version.stop()


def request_cpu_us(numbers: Numbers) -> float:
    return numbers["request_user_us"] + numbers["request_kernel_us"]


def bulk_cpu_s_gb(numbers: Numbers) -> float:
    return numbers["produce_user_s_gb"] + numbers["produce_kernel_s_gb"]


def measure(worktree: Path, scale: float, parts: Sequence[str]) -> Numbers:
    """All figures of one version, once."""
    numbers: Numbers = {}
    with tempfile.TemporaryDirectory(prefix="odradek-compare-") as scratch:
        for is_synced in (True, False):
            version = Version(Path(scratch), worktree, is_synced)
            if is_synced and "start" in parts:
                numbers |= starts(version)
            if "requests" in parts:
                numbers |= requests(version, scale)
        if "replicated" in parts:
            numbers |= replicated(ClusterVersion(Path(scratch), worktree), scale)
    return numbers


def rounds(
    worktrees: Sequence[Path], count: int, scale: float, parts: Sequence[str]
) -> Iterator[list[Numbers]]:
    for number in range(count):
        order = worktrees if number % 2 == 0 else worktrees[::-1]
        found = {worktree: measure(worktree, scale, parts) for worktree in order}
        yield [found[worktree] for worktree in worktrees]


def table_of(results: Sequence[Sequence[Numbers]]) -> Table:
    """Each result has the figures of both versions, in one round."""
    table = Table("", "before: median (lowest to highest)", "after", "after ÷ before (by round)")
    for name, (title, unit) in FIGURES.items():
        if name not in results[0][0]:
            continue
        before, after = ({at: result[side][name] for at, result in enumerate(results)} for side in (0, 1))
        texts = []
        for values in (before, after):
            median, low, high = spread_of([*values.values()])
            texts.append(f"{median:.2f} ({low:.2f} to {high:.2f}) {unit}")
        ratio = ratio_of(after, before)
        table.add_row(title, *texts, f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})")
    return table


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        "python -m bench.compare", description="Compare two versions of Odradek."
    )
    parser.add_argument("before", type=Path, help="a worktree of the version before")
    parser.add_argument(
        "after", type=Path, nargs="?", default=HERE, help="the version after (default: this one)"
    )
    parser.add_argument("--rounds", type=int, default=6, metavar="N", help="how often (6)")
    parser.add_argument("--scale", type=float, default=1.0, metavar="X", help="share of the requests (1)")
    parser.add_argument("--only", choices=PARTS, help="a part of it")
    options = parser.parse_args(arguments)
    worktrees = [options.before.resolve(), options.after.resolve()]
    parts = (options.only,) if options.only else PARTS
    console, results = Console(), []
    for result in rounds(worktrees, options.rounds, options.scale, parts):
        results.append(result)
        shown = ", ".join(f"{name} {result[0][name]:.1f} / {result[1][name]:.1f}" for name in result[0])
        console.print(f"round {len(results)}, before / after: {shown}", soft_wrap=True)
    console.print(table_of(results))


if __name__ == "__main__":
    main(sys.argv[1:])
