"""Count what must not happen to a cluster that is only busy: elections of the quorum or of leaders, and fenced brokers.

One event loop carries data, Raft and heartbeats. Metrics and logs of all nodes are read before and after a minute of
full load, the creation of ten thousand partitions, and the return of a node that was away; the difference counts.
"""

import re
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.cluster_view import ClusterView
from bench.systems import OdradekCluster

LOAD_SECONDS = 60
QUEUE_KB = 100_000  # of the producer, which is always full
PARTITIONS, TOPICS = 1_000, 10
LOGS_TIMEOUT_S = 60
AWAY_MESSAGES = 1_000_000
REST_S = 3.0
BOUND = re.compile(r'odradek_event_loop_lag_seconds_bucket\{le="([^"]+)"\} (\d+)')
NUMBER = re.compile(r"^odradek_(\w+) (\S+)$", re.MULTILINE)
COLUMNS = [
    "",
    "took, s",
    "quorum elections",
    "leader elections",
    "fencings",
    "ISR shrinks",
    "longest stall, s",
]


@dataclass(frozen=True)
class Busy:
    """The events during a piece of work."""

    title: str
    seconds: float
    quorum_elections: int
    leader_elections: int
    fencings: int
    isr_shrinks: int
    longest_stall: str  # of an event loop: below this bound

    @property
    def is_calm(self) -> bool:
        return not (self.quorum_elections or self.leader_elections or self.fencings)

    def cells(self) -> list[str]:
        counts = (self.quorum_elections, self.leader_elections, self.fencings, self.isr_shrinks)
        return [self.title, f"{self.seconds:.1f}", *map(str, counts), f"< {self.longest_stall}"]


def measure(scratch: Path, quick: bool) -> Iterator[Busy]:
    """Each on a cluster of its own, so that nothing of the work before is in the way."""
    share = 0.01 if quick else 1.0
    seconds, partitions = LOAD_SECONDS * share, max(10, int(PARTITIONS * share))
    for title, work in (
        (f"{seconds:g} s of bulk load, replication 3", lambda trial: trial.load(seconds)),
        (
            f"{TOPICS * partitions:,} partitions created, replication 3",
            lambda trial: trial.create(partitions),
        ),
        ("A node that was away catches up", lambda trial: trial.catch_up(int(AWAY_MESSAGES * share))),
    ):
        system = OdradekCluster(scratch)
        try:
            system.start()
            yield Trial(system).watch(title, work)
        finally:
            system.discard()


class Trial:
    def __init__(self, system: OdradekCluster) -> None:
        self.system = system
        self.view = ClusterView(system)

    def watch(self, title: str, work: "Callable[[Trial], None]") -> Busy:
        self.begin()
        work(self)
        seconds = time.monotonic() - self._began
        time.sleep(REST_S)  # what comes of it may come later
        numbers, stalls, fencings = self._look()
        before, stalls_before, fencings_before = self._before
        return Busy(
            title,
            round(seconds, 3),
            int(numbers["quorum_epoch"] - before["quorum_epoch"]),
            int(numbers["leader_elections_total"] - before["leader_elections_total"]),
            fencings - fencings_before,
            int(numbers["isr_shrinks_total"] - before["isr_shrinks_total"]),
            longest_stall(stalls_before, stalls),
        )

    def begin(self) -> None:
        """Begin to count: what happened until now does not."""
        self._began = time.monotonic()
        self._before = self._look()

    # Work

    def load(self, seconds: float) -> None:
        self.system.create_topic("load", 3, 3)
        limits = {"seconds": int(max(seconds, 1)), "queue.buffering.max.kbytes": QUEUE_KB}
        self.system.load("produce", topic="load", count=10**9, size=1024, **limits)

    def create(self, partitions: int) -> None:
        for number in range(TOPICS):
            self.system.create_topic(f"many-{number}", partitions, 3)
        deadline = time.monotonic() + LOGS_TIMEOUT_S
        while self._fewest_logs() < TOPICS * partitions and time.monotonic() < deadline:
            time.sleep(REST_S / 10)

    def _fewest_logs(self) -> int:
        """Logs are made after their topics are there."""
        return min(len(list(self.system.home.glob(f"data-{node}/many-*"))) for node in self.system.nodes)

    def catch_up(self, messages: int) -> None:
        self.system.create_topic("load", 3, 3)
        away = next(node for node in self.system.nodes if node != self.view.await_quorum_leader())
        process = self.system.process_of(away)
        process.send_signal(signal.SIGTERM)
        process.wait()
        self.system.load("produce", topic="load", count=messages, size=1024)
        self.begin()
        self.system.start_node(away)
        self.view.await_whole("load")

    # What nodes say

    def _look(self) -> tuple[Counter[str], dict[str, int], int]:
        """Numbers over all nodes that run, counts of stalls by their bound, fencings told in the log."""
        numbers, stalls = Counter[str](), Counter[str]()
        for node in self.view.running():
            url = f"http://127.0.0.1:{self.system.metrics_ports[node - 1]}/metrics"
            with urllib.request.urlopen(url, timeout=60) as response:
                text = response.read().decode()
            found = {name: float(value) for name, value in NUMBER.findall(text)}
            epoch = max(numbers["quorum_epoch"], int(found.pop("quorum_epoch")))
            numbers.update(found)  # adds
            numbers["quorum_epoch"] = epoch
            stalls.update({bound: int(count) for bound, count in BOUND.findall(text)})
        return numbers, dict(stalls), self.system.log().count("fenced broker")


def longest_stall(before: dict[str, int], after: dict[str, int]) -> str:
    """The lowest bound of the histogram under which all new stalls are. Counts are cumulative."""
    total = after["+Inf"] - before.get("+Inf", 0)
    return next(bound for bound, count in after.items() if count - before.get(bound, 0) >= total)
