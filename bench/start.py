"""How long a test waits for its broker, and for its cluster of three: until a first topic can be used.

    python -m bench.start --rounds 10

The clock is that on the wall, so the machine has to be quiet; the processor time of all brokers is told beside it.
"""

import argparse
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
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
    console.print(
        f"Medians of {rounds}, on {os.cpu_count()} processors. The load was {load:.1f} before it began."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
