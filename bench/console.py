"""Measure the console on a large cluster: first page, later pages, a search, its memory, and what it costs a broker.

    python -m bench.console [--topics 10000] [--partitions 3] [--groups 1000] [--records 1000000]

One broker in a process of its own has all topics; the console is the real command. Wall-clock times are of a quiet
machine; a broker's share of a core comes from its CPU time.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing import broker

AT_ONCE = 250
SEARCHED = "bench-search"
IDLE_S = 60.0
CALM_S, CALM_SHARE, CALM_TIMEOUT_S = 10.0, 2.0, 300.0
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
        with self._opener.open(self.address + path, timeout=120) as answer:
            page: bytes = answer.read()
            return page

    def post(self, path: str, body: object) -> dict[str, object]:
        headers = {"X-CSRF-Token": self._token, "Content-Type": "application/json"}
        request = urllib.request.Request(self.address + path, json.dumps(body).encode(), headers)
        with self._opener.open(request, timeout=120) as answer:
            found: dict[str, object] = json.loads(answer.read())
            return found


def seconds(action: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    action()
    return time.perf_counter() - began_s


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def share_of_a_core(pid: int, seconds_: float) -> float:
    """Return the share of a core that was used, in percent."""
    before_s = cpu_s(pid)
    time.sleep(seconds_)
    return 100 * (cpu_s(pid) - before_s) / seconds_


def calm(pid: int) -> float:
    """Wait until the broker is done with what it does after so many topics were made; the share that it then takes."""
    limit_s = time.monotonic() + CALM_TIMEOUT_S
    while (share := share_of_a_core(pid, CALM_S)) > CALM_SHARE and time.monotonic() < limit_s:
        pass
    return share


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def search(visitor: Visitor, condition: str) -> float:
    api = f"/api/clusters/cluster/topics/{SEARCHED}/searches"
    began_s = time.perf_counter()
    search_id = visitor.post(api, {"filters": [condition]})["id"]
    while json.loads(visitor.get(f"{api}/{search_id}"))["is_running"]:
        time.sleep(0.05)
    return time.perf_counter() - began_s


def measure(bootstrap: str, broker_pid: int) -> Iterator[Figure]:
    alone = calm(broker_pid)
    print(f"the broker alone takes {alone:.2f} % of a core", flush=True)
    with console(bootstrap) as (address, pid):
        visitor = Visitor(address)
        yield Figure("first page", seconds(lambda: visitor.get("/c/cluster")), "s", 1.0)
        time.sleep(30)  # the poller has seen all of it
        for name, path in (
            ("overview", "/c/cluster"),
            ("topics", "/c/cluster/topics"),
            ("topics, page 100", "/c/cluster/topics?page=100"),
            ("typing in the search", "/c/cluster/topics?search=bench-099"),
            ("topics by rate", "/c/cluster/topics?sort=-rate"),
            ("a topic", "/c/cluster/topics/bench-00042"),
            ("messages", f"/c/cluster/topics/{SEARCHED}/messages"),
        ):
            visitor.get(path)
            worst = max(seconds(lambda path=path: visitor.get(path)) for _ in range(5))  # type: ignore[misc]
            yield Figure(f"{name}, slowest of 5", worst * 1000, "ms", 300.0)
        for condition in (
            "reader-123\\b nothing",
            "key=key-500",
            "value.$.order=123456",
            "value~reader-99[0-5]$",
        ):
            yield Figure(f"search {condition}", search(visitor, condition), "s", 10.0)
        yield Figure("memory, highest", resident_mb(pid), "MB", 150.0)
        stream = urllib.request.urlopen(f"{address}/events", timeout=IDLE_S * 2)  # an open tab
        share = share_of_a_core(broker_pid, IDLE_S) - alone
        yield Figure("an idle tab, of a broker's core", max(share, 0.0), "%", 1.0)
        stream.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the console on a large cluster.")
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--records", type=int, default=1_000_000)
    options = parser.parse_args()
    with broker() as kafka:
        began_s = time.monotonic()
        make_topics(kafka.bootstrap, options.topics, options.partitions)
        make_groups(kafka.bootstrap, min(options.groups, options.topics))
        make_records(kafka.bootstrap, options.records)
        print(
            f"{options.topics:,} topics, {options.topics * options.partitions:,} partitions, "
            f"{options.groups:,} groups, {options.records:,} records, made in {time.monotonic() - began_s:.0f} s",
            flush=True,
        )
        assert kafka.pid is not None
        for figure in measure(kafka.bootstrap, kafka.pid):
            print(figure, flush=True)


if __name__ == "__main__":
    main()
