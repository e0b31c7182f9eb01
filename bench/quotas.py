"""Quotas against a real broker: how near clients stay to their byte rates, and what a throttled client costs another.

Rates: a producer and a consumer ask for as much as they get, each under a quota, for three times all windows (33 s)
after one; the first windows are a burst (docs/QUOTAS.md). The aim is the quota, within 10 %.
Others: a producer without a quota, alone and then beside four that are throttled all the time, in turn; the median
of its rates. The aim is a loss of at most 10 %.
"""

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from odradek.admin.access import Access
from odradek.admin.quotas import alter_quotas
from odradek.admin.requests import ask_any
from odradek.client.connection import Connection, ConnectionLost
from odradek.client.settings import ClientSettings
from odradek.records.record import Record, build_batch
from odradek.testing import broker
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

LIMIT = 1 << 20  # bytes per second
WINDOWS = 11  # seconds
AIM = 0.10
TOPIC = "quotas"
BATCH = bytes(build_batch([Record(0, 1_700_000_000_000, None, b"x" * 16_000)]))
THROTTLED = 4  # clients beside the one that is measured


class Client:
    """One connection, which asks for one thing after the other."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._connection = Connection(host, int(port), ClientSettings((), client_id, request_timeout_s=120.0))
        metadata = self._connection.call(MetadataRequest(None), MetadataResponse)
        self._topic_id = next(one.topic_id for one in metadata.topics if one.name == TOPIC)

    def produce(self) -> int:
        data = TopicProduceData(
            name=TOPIC, topic_id=self._topic_id, partition_data=[PartitionProduceData(0, BATCH)]
        )
        self._connection.call(ProduceRequest(None, 1, 30_000, [data]), ProduceResponse)
        return len(BATCH)

    def fetch(self) -> int:
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100_000)
        topic = FetchTopic(topic=TOPIC, topic_id=self._topic_id, partitions=[asked])
        request = FetchRequest(
            max_wait_ms=100, min_bytes=1, max_bytes=100_000, session_epoch=-1, topics=[topic]
        )
        response = self._connection.call(request, FetchResponse)
        return sum(len(part.records or b"") for one in response.responses for part in one.partitions)

    def close(self) -> None:
        self._connection.close()


def rate(work: Callable[[], int], seconds: float) -> float:
    """Bytes per second."""
    began, total = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        total += work()
    return total / (time.monotonic() - began)


def measure_rates(bootstrap: str, rounds: int) -> dict[str, float]:
    """Producer and consumer at the same time, each on a connection of its own."""
    found: dict[str, float] = {}

    def run(kind: str) -> None:
        with closing(Client(bootstrap, kind)) as client:
            work = client.produce if kind == "producer" else client.fetch
            rate(work, WINDOWS)
            found[kind] = rate(work, rounds * WINDOWS)

    threads = [threading.Thread(target=run, args=(kind,)) for kind in ("producer", "consumer")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def measure_others(bootstrap: str, rounds: int, seconds: float) -> tuple[float, float]:
    """The rates of a client without a quota: alone, and beside throttled ones."""
    alone, beside = [], []
    is_over = threading.Event()
    may_run = threading.Event()

    def be_throttled() -> None:
        with suppress(ConnectionLost), closing(Client(bootstrap, "throttled")) as client:
            while not is_over.is_set():
                may_run.wait()
                client.produce()

    threads = [threading.Thread(target=be_throttled, daemon=True) for _ in range(THROTTLED)]
    for thread in threads:
        thread.start()
    with closing(Client(bootstrap, "free")) as client:
        rate(client.produce, 1.0)
        for _ in range(rounds):
            may_run.clear()
            alone.append(rate(client.produce, seconds))
            may_run.set()
            beside.append(rate(client.produce, seconds))
    is_over.set()
    return statistics.median(alone), statistics.median(beside)


class Figure(NamedTuple):
    what: str
    quota: str
    measured: str
    difference: float  # as a share
    least: float  # that it may be
    most: float

    @property
    def is_met(self) -> bool:
        return self.least <= self.difference <= self.most

    @property
    def aim(self) -> str:
        return f"±{AIM:.0%}" if self.most == AIM else f"at least {self.least:+.0%}"


def measure(rounds: int, seconds: float) -> list[Figure]:
    with broker() as kafka:
        access = Access(kafka.bootstrap, {})
        ask_any(access, CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1)]), CreateTopicsResponse)
        with closing(Client(kafka.bootstrap, "filler")) as client:
            rate(client.produce, 1.0)
        alter_quotas(access, {"client-id": "producer"}, {"producer_byte_rate": LIMIT})
        alter_quotas(access, {"client-id": "consumer"}, {"consumer_byte_rate": LIMIT})
        figures = [
            _rate_figure(kind, found)
            for kind, found in sorted(measure_rates(kafka.bootstrap, rounds).items())
        ]
        alter_quotas(access, {"client-id": "throttled"}, {"producer_byte_rate": 100_000})
        alone, beside = measure_others(kafka.bootstrap, rounds, seconds)
    what, found = (
        f"another producer, MB/s, beside {THROTTLED} throttled",
        f"{alone / 1e6:.1f} → {beside / 1e6:.1f}",
    )
    return [*figures, Figure(what, "", found, beside / alone - 1, -AIM, float("inf"))]


def _rate_figure(kind: str, found: float) -> Figure:
    return Figure(f"{kind}, MB/s", f"{LIMIT / 1e6:.2f}", f"{found / 1e6:.2f}", found / LIMIT - 1, -AIM, AIM)


def table_of(figures: list[Figure]) -> Table:
    table = Table("what", "quota", "measured", "difference", "aim")
    for figure in figures:
        table.add_row(figure.what, figure.quota, figure.measured, f"{figure.difference:+.1%}", figure.aim)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="windows to measure rates over, and pairs of runs"
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run beside throttled clients")
    parser.add_argument("--quick", action="store_true", help="one round, of 11 s")
    options = parser.parse_args()
    figures = measure(1 if options.quick else options.rounds, options.seconds)
    Console().print(table_of(figures))
    return 0 if all(figure.is_met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
