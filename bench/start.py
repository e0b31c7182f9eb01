"""Measure how long a test waits for its broker, and for its cluster of three, until a first topic can be used.

It also measures what a command of a client and a TAB in the shell cost.

    python -m bench.start --rounds 10

The clock is that on the wall, so the machine has to be quiet; the processor time of all brokers is told beside it.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from odradek.testing import Broker, Cluster

Startable = Broker | Cluster


class Start(NamedTuple):
    up_s: float  # until all brokers serve
    usable_s: float  # until a topic is there
    cpu_s: float  # of the brokers, to their end


def measure(make: Callable[[], Startable]) -> Start:
    before, began = children_cpu_s(), time.monotonic()
    with make() as running:
        up = time.monotonic()
        running.create_topic()
        usable = time.monotonic()
    return Start(up - began, usable - began, children_cpu_s() - before)


class Command(NamedTuple):
    """A command of a client, as its user waits for it."""

    seconds: float
    cpu_s: float


def measure_command(environ: Mapping[str, str], *command: str) -> Command:
    before, began = children_cpu_s(), time.monotonic()
    subprocess.run(command, env={**os.environ, **environ}, check=True, stdout=subprocess.DEVNULL)
    return Command(time.monotonic() - began, children_cpu_s() - before)


def completion(line: str) -> dict[str, str]:
    """The environment in which bash asks us to complete a line."""
    return {"_ODRADEK_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}


def measure_commands(rounds: int) -> Table:
    odradek = (sys.executable, "-m", "odradek")
    table = Table("", "seconds", "processor, s")
    with Broker() as broker, tempfile.TemporaryDirectory() as cache:
        broker.create_topic("orders")
        shell = {"ODRADEK_BOOTSTRAP_SERVER": broker.bootstrap, "XDG_CACHE_HOME": cache}
        nothing_seen = shell | {"XDG_CACHE_HOME": os.devnull}  # where nothing can be kept
        commands: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
            "odradek topic list": (shell, (*odradek, "topic", "list")),
            "TAB: odradek to": (shell | completion("odradek to"), odradek),
            "TAB: odradek topic describe ord": (
                nothing_seen | completion("odradek topic describe ord"),
                odradek,
            ),
            "the same again, within 10 s": (shell | completion("odradek topic describe ord"), odradek),
        }
        if kcat := shutil.which("kcat"):
            commands["kcat -L"] = ({}, (kcat, "-b", broker.bootstrap, "-L"))
        for name, (environ, command) in commands.items():
            measure_command(environ, *command)
            found = [measure_command(environ, *command) for _ in range(rounds)]
            table.add_row(name, *(f"{statistics.median(column):.3f}" for column in zip(*found, strict=True)))
    return table


def children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m bench.start", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=10, metavar="N", help="how often each is started (default 10)"
    )
    rounds = parser.parse_args(arguments).rounds
    load = os.getloadavg()[0]
    table = Table("", "up, s", "usable, s", "slowest, s", "processor, s")
    measure(Broker)  # what is imported here, and read from disk for the first time
    for name, make in (("one broker", Broker), ("three brokers", Cluster)):
        starts = [measure(make) for _ in range(rounds)]
        up_s, usable_s, cpu_s = (statistics.median(column) for column in zip(*starts, strict=True))
        slowest_s = max(start.usable_s for start in starts)
        table.add_row(name, *(f"{seconds:.2f}" for seconds in (up_s, usable_s, slowest_s, cpu_s)))
    console = Console()
    console.print(table)
    console.print(measure_commands(rounds))
    console.print(
        f"Medians of {rounds}, on {os.cpu_count()} processors. The load was {load:.1f} before it began."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
