"""The command: choose systems and workloads, measure, print, store. `python -m bench --help`."""

import argparse
import resource
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from bench import plots, report, summary
from bench.other_systems import Nats, RabbitMq, Redis, SyncedRedis
from bench.runner import RESULTS, Run, Runner, load_run
from bench.systems import (
    Kafka,
    KafkaCluster,
    Odradek,
    OdradekCluster,
    SyncedKafka,
    System,
    UnsyncedOdradek,
    UnsyncedOdradekCluster,
)
from bench.workloads import BESIDE_KAFKA, CLUSTER, GROWTH, OWN, WORKLOADS, Workload

QUICK_SCALE = 0.01
ALL_WORKLOADS = [*WORKLOADS, *OWN, *CLUSTER, *GROWTH]
SUITES: dict[str, tuple[list[Workload], list[type[System]], int]] = {
    "own": (OWN, [Odradek, UnsyncedOdradek], 3),
    "peers": (WORKLOADS, [Odradek, UnsyncedOdradek, Kafka, Nats, RabbitMq, Redis], 3),
    "kafka": (BESIDE_KAFKA, [Odradek, UnsyncedOdradek, Kafka], 5),
    "cluster": (CLUSTER, [OdradekCluster, UnsyncedOdradekCluster, KafkaCluster], 3),
    "growth": (GROWTH, [Odradek], 1),
}
SYSTEMS: list[type[System]] = [
    *(Odradek, UnsyncedOdradek, Kafka, SyncedKafka, Nats, RabbitMq, Redis, SyncedRedis),
    *(OdradekCluster, UnsyncedOdradekCluster, KafkaCluster),
]

Named = TypeVar("Named", Workload, type[System])


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m bench", description="Measure Odradek and what it stands beside."
    )
    parser.add_argument("suite", nargs="?", default="own", choices=[*SUITES, "show"], help="default: own")
    parser.add_argument(
        "stored", nargs="?", metavar="NAME", help="with show: which stored run, such as peers"
    )
    parser.add_argument(
        "--markdown", action="store_true", help="with show: print the tables of the docs alone"
    )
    parser.add_argument(
        "--only",
        action="extend",
        nargs="+",
        default=[],
        metavar="NAME",
        help="these systems and workloads alone: " + ", ".join(names_of(SYSTEMS)) + "; " + workload_names(),
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="how often (3; kafka 5, growth 1)")
    parser.add_argument(
        "--quick", action="store_true", help="a sanity run: one round, a hundredth of the work"
    )
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()), metavar="DIR",
                        help="where servers keep their data; a disk, not memory")  # fmt: skip
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="default: bench/results")
    options = parser.parse_args(arguments)
    unknown = set(options.only) - {*names_of(SYSTEMS), *names_of(ALL_WORKLOADS)}
    if unknown:
        parser.error(f"neither a system nor a workload: {', '.join(sorted(unknown))}")
    if (options.suite == "show") != bool(options.stored):
        parser.error("show takes the name of a stored run, and nothing else does")
    if options.stored and not stored_path(options).exists():
        names = sorted(path.stem for path in options.results.glob("*.json"))
        parser.error(f"there is no stored run {options.stored}, but {', '.join(names) or 'none at all'}")
    return options


def stored_path(options: argparse.Namespace) -> Path:
    return Path(options.results / f"{options.stored}.json")


def part_name(options: argparse.Namespace) -> str:
    """The end of a run's name: one of a part, or of next to no work, must not replace the whole."""
    return ("-part" if options.only else "") + ("-quick" if options.quick else "")


def names_of(things: Sequence[Named]) -> list[str]:
    return [thing.name for thing in things]


def workload_names() -> str:
    return ", ".join(dict.fromkeys(names_of(ALL_WORKLOADS)))


def chosen(only: Sequence[str], default: list[Named], known: Sequence[Named]) -> list[Named]:
    """Return those of `known` that were named; if none was, the default."""
    return [thing for thing in known if thing.name in only] or default


def open_many_files() -> None:
    """Raise the limit of open files to what is allowed; servers and load generators inherit it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def measure(options: argparse.Namespace) -> Run:
    workloads, systems, rounds = SUITES[options.suite]
    rounds = options.rounds or (1 if options.quick else rounds)
    scale = QUICK_SCALE if options.quick else 1.0
    run = Run(options.suite, rounds, scale, part=part_name(options))
    runner = Runner(run, chosen(options.only, workloads, workloads), options.scratch, options.results)
    open_many_files()
    runner.measure(chosen(options.only, systems, SYSTEMS))
    return run


def main(arguments: Sequence[str]) -> int:
    options = parse_arguments(arguments)
    if options.suite == "show":
        run = load_run(stored_path(options))
        if options.markdown:
            print(summary.markdown(run), end="")
            return 0
    else:
        run = measure(options)
        run.store(options.results)
    console = Console()
    report.print_report(run, console if console.is_terminal else Console(width=report.WIDTH))
    stored = [report.store_markdown(run, options.results), plots.draw(run, options.results)]
    console.print("stored beside its numbers: " + ", ".join(str(path) for path in stored), soft_wrap=True)
    return 1 if run.failures else 0


if __name__ == "__main__":
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM")
    )  # as by Ctrl-C, servers are stopped
    sys.exit(main(sys.argv[1:]))
