"""Measure the console on a large cluster: first page, later pages, a search, its memory, and what it costs a broker.

    python -m bench.console [--topics 10000] [--partitions 3] [--groups 1000] [--records 1000000]

One broker in a process of its own has all topics; the console is the real command. Wall-clock times are of a quiet
machine; a broker's share of a core comes from its CPU time. The whole run ends after `LIMIT_S`, with what it has
measured until then.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing import broker

AT_ONCE = 250
SEARCHED = "bench-search"
LIMIT_S = 460
SEEN_S = 30.0  # for the poller to see all of it
IDLE_S = 60.0
CALM_S, CALM_SHARE = 10.0, 2.0
MEASURING_S = 150.0  # what follows the calm
BROWSED = 150  # topics, before memory is measured
TYPED = "bench-0994"
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Figure:
    name: str
    value: float
    unit: str
    most: float

    def __str__(self) -> str:
        verdict = "ok" if self.value <= self.most else "ABOVE"
        return f"{self.name:<44} {self.value:>10.2f} {self.unit:<4} (at most {self.most:g})  {verdict}"


def make_topics(bootstrap: str, count: int, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for at in range(0, count, AT_ONCE):
        new = [
            NewTopic(f"bench-{number:05}", partitions, 1) for number in range(at, min(at + AT_ONCE, count))
        ]
        for future in admin.create_topics(new, request_timeout=120).values():
            future.result()


def make_groups(bootstrap: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for number in range(count):
        places = [TopicPartition(f"bench-{number:05}", 0, 0)]
        wanted = [ConsumerGroupTopicPartitions(f"group-{number:04}", places)]
        for future in admin.alter_consumer_group_offsets(wanted).values():
            future.result()


def make_records(bootstrap: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(SEARCHED, 4, 1)]).values():
        future.result()
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 500_000}
    )
    for number in range(count):
        value = f'{{"order": {number}, "reader": "reader-{number % 997}", "book": "The Trial"}}'
        while True:
            try:
                producer.produce(SEARCHED, value, f"key-{number % 997}")
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


@contextmanager
def console(bootstrap: str) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-m", "odradek", "console", "-b", bootstrap, "--port", "0", "--lifeline"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        yield child.stdout.readline().split()[-1].rstrip("/"), child.pid
        child.terminate()


class Visitor:
    """A browser, as far as a bench needs one."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        self._token = json.loads(self.get("/api/session"))["token"]

    def get(self, path: str) -> bytes:
        with self._opener.open(self.address + path, timeout=120) as response:
            page: bytes = response.read()
            return page

    def post(self, path: str, body: object) -> dict[str, object]:
        headers = {"X-CSRF-Token": self._token, "Content-Type": "application/json"}
        request = urllib.request.Request(self.address + path, json.dumps(body).encode(), headers)
        with self._opener.open(request, timeout=120) as response:
            found: dict[str, object] = json.loads(response.read())
            return found


def time_of(visitor: Visitor, path: str) -> float:
    """In seconds."""
    began_s = time.perf_counter()
    visitor.get(path)
    return time.perf_counter() - began_s


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def share_of_a_core(pid: int, seconds_: float) -> float:
    """Return the share of a core that was used, in percent."""
    before_s = cpu_s(pid)
    time.sleep(seconds_)
    return 100 * (cpu_s(pid) - before_s) / seconds_


def calm(pid: int, limit_s: float) -> float:
    """Wait until the broker is done with what it does after so many topics were made; the share that it then takes."""
    while (share := share_of_a_core(pid, CALM_S)) > CALM_SHARE and time.monotonic() < limit_s:
        pass
    return share


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


@dataclass
class Search:
    """Seconds until its end, and until its first record was there; None if it found none."""

    whole_s: float
    first_s: float | None


def search(visitor: Visitor, condition: str) -> Search:
    api = f"/api/clusters/cluster/topics/{SEARCHED}/searches"
    began_s = time.perf_counter()
    search_id = visitor.post(api, {"filters": [condition], "limit": 1_000})["id"]
    first_s = None
    while True:
        found = json.loads(visitor.get(f"{api}/{search_id}"))
        if first_s is None and found["count"]:
            first_s = time.perf_counter() - began_s
        if not found["is_running"]:
            return Search(time.perf_counter() - began_s, first_s)
        time.sleep(0.05)


def first_pages(visitor: Visitor) -> Iterator[Figure]:
    began_s = time.perf_counter()
    visitor.get("/c/cluster")
    yield Figure("first page", time.perf_counter() - began_s, "s", 1.0)
    while not json.loads(visitor.get("/api/clusters/cluster"))["is_known"]:
        time.sleep(0.02)
    yield Figure("first page that knows the cluster", time.perf_counter() - began_s, "s", 1.0)


def later_pages(visitor: Visitor) -> Iterator[Figure]:
    """Five different topics and groups: what was asked for a moment ago would not be asked for again."""
    for name, path in (
        ("overview", ""),
        ("topics", "/topics"),
        ("topics, page 100", "/topics?page=100"),
        ("topics by rate", "/topics?sort=-rate"),
        ("a topic", "/topics/bench-{:05}"),
        ("its settings", "/topics/bench-{:05}/settings"),
        ("messages", f"/topics/{SEARCHED}/messages"),
        ("groups", "/groups"),
        ("a group", "/group?name=group-{:04}"),
        ("picture of the cluster", "/picture?whole=true"),
        ("picture of a topic", "/picture?topic=bench-{:05}"),
    ):
        visitor.get("/c/cluster" + path.format(1))
        worst_s = max(time_of(visitor, "/c/cluster" + path.format(number)) for number in range(40, 45))
        yield Figure(f"{name}, slowest of 5", worst_s * 1000, "ms", 300.0)
    typed = [TYPED[: length + 1] for length in range(len(TYPED))]
    worst_s = max(time_of(visitor, f"/c/cluster/topics?search={text}") for text in typed)
    yield Figure("typing in the search, slowest letter", worst_s * 1000, "ms", 300.0)


def searches(visitor: Visitor) -> Iterator[Figure]:
    for condition in (
        "reader-123\\b nothing",
        "key=key-500",
        "value.$.order=123456",
        "value~reader-99[0-5]$",
    ):
        found = search(visitor, condition)
        yield Figure(f"search {condition}", found.whole_s, "s", 10.0)
        if found.first_s is not None:
            yield Figure("    its first record", found.first_s, "s", 10.0)


def measure(bootstrap: str, broker_pid: int, limit_s: float) -> Iterator[Figure]:
    alone = calm(broker_pid, limit_s - MEASURING_S)
    print(f"the broker alone takes {alone:.2f} % of a core", flush=True)
    with console(bootstrap) as (address, pid):
        visitor = Visitor(address)
        yield from first_pages(visitor)
        time.sleep(SEEN_S)
        yield from later_pages(visitor)
        yield from searches(visitor)
        for number in range(BROWSED):
            visitor.get(f"/c/cluster/topics/bench-{number:05}/messages")
        yield Figure("memory, highest", resident_mb(pid), "MB", 150.0)
        stream = urllib.request.urlopen(f"{address}/events", timeout=IDLE_S * 2)  # an open tab
        share = share_of_a_core(broker_pid, IDLE_S) - alone
        yield Figure("an idle tab, of a broker's core", max(share, 0.0), "%", 1.0)
        stream.close()


def end_late(*_: object) -> None:
    raise SystemExit(f"ended after {LIMIT_S} s: what is missing above was not measured")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the console on a large cluster.")
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--records", type=int, default=1_000_000)
    options = parser.parse_args()
    began_s = time.monotonic()
    signal.signal(signal.SIGALRM, end_late)
    signal.alarm(LIMIT_S)
    with broker() as kafka:
        make_topics(kafka.bootstrap, options.topics, options.partitions)
        make_groups(kafka.bootstrap, min(options.groups, options.topics))
        make_records(kafka.bootstrap, options.records)
        print(
            f"{options.topics:,} topics, {options.topics * options.partitions:,} partitions, "
            f"{options.groups:,} groups, {options.records:,} records, made in {time.monotonic() - began_s:.0f} s",
            flush=True,
        )
        assert kafka.pid is not None
        for figure in measure(kafka.bootstrap, kafka.pid, began_s + LIMIT_S):
            print(figure, flush=True)


if __name__ == "__main__":
    main()
