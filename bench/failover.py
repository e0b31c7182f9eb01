"""Measure what becomes of a cluster of three when a node is lost, and what does not when it is only busy.

    python -m bench.failover [--quick] [--kills N] [--only NAME…]

An idempotent producer (load.c, `watch`) writes to three partitions without pause, each led by another node, and notes
when one of them accepts nothing. Meanwhile nodes are killed with -9 and started again, ten times those that lead a
partition, ten times those that lead the metadata quorum too; then all three are stopped and started in turn. At the end
everything is read back: each number that was sent must be there once, and in order. While a process is stopped
(SIGSTOP), bare Produce requests go to the other nodes: a client's own patience with it is longer than the cluster's.

Under load (`calm`) no node of ours may lose its place: a quorum that elects, or a broker that is fenced, because the
process was busy, would be a fault. Results are printed and stored as failover.json and failover.md.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

from bench import calm, kafka_requests, native, workloads
from bench.cluster_view import ClusterView, GivenUp
from bench.measure import machine_facts
from bench.native import Unavailable
from bench.runner import RESULTS
from bench.systems import KafkaCluster, KafkaProtocolSystem, OdradekCluster

KILLS = 10
KAFKA_SHARE = 2  # of these kills one in so many: each takes its session time, always the same
MANY_PARTITIONS = 1_000
SETTLE_S = 1.5
SLACK_S = 0.5
PROBE_INTERVAL_S = 0.01
KIND = "failover"
# librdkafka waits up to 10 s before it connects again to a node that has refused it: that would be its own silence.
PRODUCER = {"enable.idempotence": "true", "reconnect.backoff.max.ms": 200}

TITLES = {
    "leader_killed_s": "A leader killed with -9: silence, s",
    "leader_back_s": "It comes back, and leads again: silence, s",
    "quorum_leader_killed_s": "One killed that led the quorum too: silence, s",
    "quorum_leader_back_s": "It comes back, and leads again: silence, s",
    "stopped_s": "A leader stopped (SIGSTOP): until another accepts, s",
    "quorum_leader_stopped_s": "One that led the quorum too: until another accepts, s",
    "rolling_s": "All three restarted in turn (SIGTERM): longest silence, s",
    "many_led_s": "A leader of {many} partitions killed: until all are led again, s",
    "quorum_many_led_s": "One that led the quorum too: until all are led again, s",
    "failed": "Writes that failed",
    "lost": "Acknowledged records lost",
    "doubled": "Records written twice or out of order",
}


Tell = Callable[[str], None]


class Gap(NamedTuple):
    """A time in which a partition accepted nothing."""

    partition: int
    begin: float
    end: float


@dataclass
class Outcome:
    """The measurements of a system; times by their names in `TITLES`."""

    title: str
    version: str
    seconds: dict[str, list[float]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: {"failed": 0, "lost": 0, "doubled": 0})
    failure: str = ""


@dataclass
class Report:
    scale: str
    partitions: int
    machine: dict[str, str]
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    busy: list[calm.Busy] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """True if nothing was lost, doubled or refused, and nobody lost its place."""
        return all(
            not one.failure and not any(one.counts.values()) for one in self.outcomes.values()
        ) and all(one.is_calm for one in self.busy)


# Losing nodes


class Trial:
    """One cluster, warm, and what is done to it."""

    def __init__(
        self, system: KafkaProtocolSystem, outcome: Outcome, kills: int, partitions: int, tell: Tell
    ) -> None:
        """`tell` hears of every figure."""
        self.system, self.outcome = system, outcome
        self.kills, self.partitions = kills, partitions
        self.tell = tell
        self.view = ClusterView(system)

    def run(self) -> None:
        self.kill_leaders("leader_killed_s", self.kills, lead_quorum=False)
        self.kill_leaders("quorum_leader_killed_s", self.kills, lead_quorum=True)
        self.restart_in_turn()
        self.stop_leader("stopped_s", lead_quorum=False)
        self.stop_leader("quorum_leader_stopped_s", lead_quorum=True)
        self.kill_leader_of_many("many_led_s", lead_quorum=False)
        if not self._is_kafka:
            self.kill_leader_of_many("quorum_many_led_s", lead_quorum=True)

    def measured(self, figure: str, seconds: list[float]) -> None:
        self.outcome.seconds[figure] = seconds
        self.tell(f"{self.system.title}: {title_of(figure, self.partitions)}: {times_text(seconds)}")

    @property
    def _is_kafka(self) -> bool:
        return isinstance(self.system, KafkaCluster)

    def kill_leaders(self, figure: str, kills: int, lead_quorum: bool) -> None:
        away, back = [], []
        with self.watched(figure) as (topic, gaps):
            for number in range(kills):
                victim = self.victim(lead_quorum, number)
                killed = self.kill(victim)
                self.view.await_led_without(victim, topic, self.view.running())
                time.sleep(SETTLE_S)
                started = time.monotonic()
                self.bring_back(victim, topic)
                away.append((killed, started))
                back.append((started, time.monotonic()))
        self.measured(figure, silences(gaps, away))
        self.measured(f"{figure.removesuffix('killed_s')}back_s", silences(gaps, back))

    def restart_in_turn(self) -> None:
        with self.watched("rolling_s") as (topic, gaps):
            began = time.monotonic()
            for node in self.system.nodes:
                process = self.system.process_of(node)
                process.send_signal(signal.SIGTERM)
                process.wait()
                self.system.start_node(node)
                self.view.await_whole(topic)
        self.measured("rolling_s", silences(gaps, [(began, float("inf"))]))

    def stop_leader(self, figure: str, lead_quorum: bool) -> None:
        topic = f"{figure}-topic".replace("_", "-")
        self.system.place_topic(topic, in_turn(self.system.nodes))
        victim = self.victim(lead_quorum, 0)
        others = [node for node in self.system.nodes if node != victim]
        process = self.system.process_of(victim)
        process.send_signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            while not any(self._accepts(node, topic, victim - 1) for node in others):
                time.sleep(PROBE_INTERVAL_S)
            self.measured(figure, [time.monotonic() - began])
        finally:
            process.send_signal(signal.SIGCONT)
        self.view.await_whole(topic)

    def _accepts(self, node: int, topic: str, partition: int) -> bool:
        return kafka_requests.accepts_produce(self.system.ports[node - 1], topic, partition)

    def kill_leader_of_many(self, figure: str, lead_quorum: bool) -> None:
        topic = f"{figure}-topic".replace("_", "-")
        victim = self.victim(lead_quorum, 0)
        others = [node for node in self.system.nodes if node != victim]
        turns = ([victim, *others], [victim, *reversed(others)])
        self.system.place_topic(topic, [turns[number % 2] for number in range(self.partitions)])
        self.view.await_whole(topic)
        time.sleep(SETTLE_S)
        began = self.kill(victim)
        self.view.await_led_without(victim, topic, others)
        self.measured(figure, [time.monotonic() - began])
        self.system.start_node(victim)
        self.view.await_whole(topic)

    def victim(self, lead_quorum: bool, number: int) -> int:
        """The node that leads the quorum, or one of the others in turn. Each leads a partition."""
        leader = self.view.await_quorum_leader()
        others = [node for node in self.system.nodes if node != leader]
        return leader if lead_quorum else others[number % len(others)]

    def kill(self, node: int) -> float:
        process = self.system.process_of(node)
        moment = time.monotonic()
        process.kill()
        process.wait()
        return moment

    def bring_back(self, node: int, topic: str) -> None:
        self.system.start_node(node)
        self.view.await_whole(topic)
        self.view.prefer_leaders(topic)
        time.sleep(SETTLE_S)

    @contextmanager
    def watched(self, figure: str) -> Iterator[tuple[str, list[Gap]]]:
        """A topic with a leader on every node, under a producer. After the block there are its gaps, and all that was
        sent is read back."""
        topic, gaps = f"{figure}-topic".replace("_", "-"), list[Gap]()
        placed = in_turn(self.system.nodes)
        self.system.place_topic(topic, placed)
        arguments = {"bootstrap": self.system.bootstrap, "topic": topic, "partitions": len(placed)}
        with native.running("load", "watch", {**arguments, **PRODUCER}) as output:
            time.sleep(SETTLE_S)
            yield topic, gaps
        gaps += [Gap(*each) for each in output["gaps"]]
        lost, doubled = 0, 0
        for partition, numbers in read_numbers(self.system.bootstrap, topic, len(placed)).items():
            sent = len(range(partition, output["messages"], len(placed)))
            here = lost_and_doubled(numbers, sent)
            lost, doubled = lost + here[0], doubled + here[1]
        found = {"failed": output["failed"], "lost": lost, "doubled": doubled}
        for name, count in found.items():
            self.outcome.counts[name] += count


def in_turn(nodes: Sequence[int]) -> list[list[int]]:
    """Replicas of one partition for each node, which is the first of them."""
    return [[*nodes[place:], *nodes[:place]] for place in range(len(nodes))]


def silences(gaps: Sequence[Gap], times: Sequence[tuple[float, float]]) -> list[float]:
    """Find, for each span of time, the longest gap that began in it. The last record before may be a moment old."""
    return [
        max(
            (gap.end - gap.begin for gap in gaps if begin - SLACK_S <= gap.begin < end - SLACK_S), default=0.0
        )
        for begin, end in times
    ]


def lost_and_doubled(numbers: Sequence[int], sent: int) -> tuple[int, int]:
    """Count the numbers up to `sent` that were not read, and those that were read again or after a later one."""
    newest, wrong = -1, 0
    for number in numbers:
        wrong += number <= newest
        newest = max(newest, number)
    return sent - len(set(numbers)), wrong


def read_numbers(bootstrap: str, topic: str, partitions: int) -> dict[int, list[int]]:
    """All that is in a topic, by partition, in the order of the log."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.partition.eof": True}
    consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
    found: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
    consumer.assign([TopicPartition(topic, partition, 0) for partition in found])
    unfinished = set(found)
    deadline = time.monotonic() + native.RUN_TIMEOUT_S
    while unfinished and time.monotonic() < deadline:
        for message in consumer.consume(10_000, timeout=0.2):
            partition, value = message.partition(), message.value()
            assert partition is not None
            if message.error() is None and value is not None:
                found[partition].append(int(value.partition(b"\0")[0]))
            else:
                unfinished.discard(partition)  # its end
    consumer.close()
    return found


# The command


def measure(options: argparse.Namespace, console: Console) -> Report:
    """Measure, then print and store each result at once: a run that is broken off has lost nothing."""

    def tell(line: str) -> None:
        console.print(line, markup=False, highlight=False)
        store(report, options.results)

    partitions = 20 if options.quick else MANY_PARTITIONS
    kills = 1 if options.quick else options.kills
    with tempfile.TemporaryDirectory(prefix="odradek-failover-", dir=options.scratch) as name:
        scratch = Path(name)
        report = Report("quick" if options.quick else "full", partitions, machine_facts(scratch))
        for kind in (OdradekCluster, KafkaCluster):
            if not options.only or kind.name in options.only:
                lose_nodes(kind, scratch, report, kills, tell)
        if not options.only or "calm" in options.only:
            for busy in calm.measure(scratch, options.quick):
                report.busy.append(busy)
                tell(f"{busy.title}: {busy.seconds:.1f} s, {'calm' if busy.is_calm else 'NOT CALM'}")
        store(report, options.results)
    return report


def lose_nodes(
    kind: type[KafkaProtocolSystem], scratch: Path, report: Report, kills: int, tell: Tell
) -> None:
    try:
        system = kind(scratch)
    except Unavailable as error:
        report.left_out[kind.name] = str(error)
        return
    outcome = report.outcomes[kind.name] = Outcome(kind.title, system.version())
    try:
        system.start()
        warm_up(system, 0.2 if report.scale == "full" else 0.01)
        share = KAFKA_SHARE if kind is KafkaCluster else 1
        Trial(system, outcome, -(-kills // share), report.partitions, tell).run()
    except (GivenUp, Unavailable, native.LoadFailed) as error:
        outcome.failure = str(error)
    finally:
        system.discard()


def warm_up(system: KafkaProtocolSystem, scale: float) -> None:
    """A little of bulk and of small requests: what is measured here are seconds in which nothing is done."""
    workloads.bulk(system, scale, replication=3)
    workloads.one_message(system, scale, replication=3)


# What is shown


def times_text(seconds: Sequence[float]) -> str:
    """The worst, then all."""
    if not seconds:
        return ""
    all_of_them = ", ".join(f"{one:.2f}" for one in seconds)
    return f"{max(seconds):.2f}" if len(seconds) == 1 else f"{max(seconds):.2f} ({all_of_them})"


def title_of(figure: str, partitions: int) -> str:
    return TITLES[figure].format(many=f"{partitions:,}")


def loss_rows(report: Report) -> list[list[str]]:
    rows = []
    for name in TITLES:
        cells = [
            str(one.counts[name]) if name in one.counts else times_text(one.seconds.get(name, []))
            for one in report.outcomes.values()
        ]
        if any(cells):
            rows.append([title_of(name, report.partitions), *cells])
    return rows


def tables(report: Report) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Heading, columns, rows."""
    if report.outcomes:
        titles = [f"{one.title} {one.version}" for one in report.outcomes.values()]
        yield "Nodes lost: the worst of all (all of them)", ["", *titles], loss_rows(report)
    if report.busy:
        rows = [one.cells() for one in report.busy]
        yield "Odradek's three nodes under load: what must not happen", calm.COLUMNS, rows


def notes(report: Report) -> Iterator[str]:
    if report.scale != "full":
        yield "A sanity run: these numbers mean nothing."
    for name, reason in report.left_out.items():
        yield f"left out: {name}: {reason}"
    for name, outcome in report.outcomes.items():
        if outcome.failure:
            yield f"failed: {name}: {outcome.failure}"


def print_report(report: Report, console: Console) -> None:
    for heading, columns, rows in tables(report):
        table = Table(title=heading, title_justify="left")
        for column in columns:
            table.add_column(column)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for note in notes(report):
        console.print(note, style="yellow", markup=False)


def markdown(report: Report) -> str:
    lines = [", ".join(f"{name} {value}" for name, value in report.machine.items()) + ".", ""]
    for heading, columns, rows in tables(report):
        lines += [f"**{heading}**", "", "| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
        lines.append("")
    return "\n".join([*lines, *(f"- {note}" for note in notes(report)), ""])


def store(report: Report, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{KIND}.json").write_text(json.dumps(asdict(report), indent=1, ensure_ascii=False) + "\n")
    (directory / f"{KIND}.md").write_text(markdown(report))


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m bench.failover", description="Lose nodes of a cluster of three."
    )
    parser.add_argument(
        "--quick", action="store_true", help="a sanity run: one kill of each kind, little load"
    )
    parser.add_argument("--kills", type=int, default=KILLS, metavar="N", help="how often (%(default)s)")
    parser.add_argument("--only", nargs="+", choices=[OdradekCluster.name, KafkaCluster.name, "calm"],
                        default=[], help="these parts alone")  # fmt: skip
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()), metavar="DIR",
                        help="where servers keep their data; a disk, not memory")  # fmt: skip
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="default: bench/results")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse_arguments(arguments)
    console = Console()
    console = console if console.is_terminal else Console(width=160)
    report = measure(options, console)
    print_report(report, console)
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
