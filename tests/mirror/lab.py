"""The common parts of tests of mirrors on real brokers: files, the ledger of both sides, and processes."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.client.cluster import EARLIEST, LATEST, Cluster
from odradek.client.fetching import RangeReader
from odradek.client.settings import ClientSettings, FetchSettings
from odradek.mirror.file import load
from odradek.mirror.running import MirrorRun
from odradek.records.record import Headers, decode_batch
from tests.support import odradek_command

# Small fetches, so that little data takes many transactions, and little patience with an empty log.
SMALL = {"fetch.min.bytes": "1", "fetch.max.wait.ms": "50", "max.partition.fetch.bytes": "2000"}


class Copied(NamedTuple):
    """The parts of a record that must be the same on both sides."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def write_file(
    directory: Path,
    west: str,
    east: str,
    topics: str = 'names = ["orders"]',
    groups: str = "",
    source: Mapping[str, str] = SMALL,
    names: tuple[str, str] = ("west", "east"),
    target: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    def settings(bootstrap: str, more: Mapping[str, str]) -> str:
        return "".join(
            f'"{name}" = "{value}"\n' for name, value in {"bootstrap.servers": bootstrap, **more}.items()
        )

    file = directory / f"{names[0]}-{names[1]}.toml"
    file.write_text(
        f'[source]\nname = "{names[0]}"\n[source.kafka]\n{settings(west, source)}'
        f'[target]\nname = "{names[1]}"\n[target.kafka]\n{settings(east, target)}'
        f"[topics]\n{topics}\n[groups]\n{groups}\n"
    )
    return file


def client(bootstrap: str) -> Cluster:
    addresses = [one.rpartition(":") for one in bootstrap.split(",")]
    return Cluster(ClientSettings(tuple((host, int(port)) for host, _, port in addresses)))


def ledger(bootstrap: str, topic: str) -> dict[int, list[Copied]]:
    """Every committed record of each partition, in order; waits until transactions that are open have ended."""
    return {
        number: [Copied(one.timestamp, one.key, one.value, one.headers) for one in records]
        for number, records in records_of(bootstrap, topic).items()
    }


def records_of(bootstrap: str, topic: str) -> dict[int, list[Any]]:
    cluster = client(bootstrap)
    found: dict[int, list[Any]] = {}
    for partition in cluster.partitions_of([topic]):
        start = cluster.list_offsets({partition: EARLIEST})[partition]
        end = cluster.list_offsets({partition: LATEST})[partition]
        reader = RangeReader(
            cluster, partition, start, end, FetchSettings(read_committed=True, max_wait_ms=50), 300
        )
        records = found[partition.partition] = []
        while reader.position < end:
            for batch in reader.fetch().batches:
                records += [one for one in decode_batch(batch.data, batch.header) if one.offset >= start]
    cluster.close()
    return found


def codecs_of(bootstrap: str, topic: str) -> set[int]:
    cluster, found = client(bootstrap), set()
    for partition in cluster.partitions_of([topic]):
        end = cluster.list_offsets({partition: LATEST})[partition]
        reader = RangeReader(cluster, partition, 0, end, FetchSettings(read_committed=True), 300)
        while reader.position < end:
            found |= {batch.header.codec for batch in reader.fetch().batches}
    cluster.close()
    return found


def fill(
    bootstrap: str,
    topic: str,
    count: int,
    partitions: int = 2,
    start_ms: int = 0,
    **settings: Any,
) -> None:
    """Records with keys, headers and times, in small batches."""
    start_ms = start_ms or time.time_ns() // 1_000_000 - count  # not so old that retention takes it
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "batch.size": 500,
            **{k.replace("_", "."): v for k, v in settings.items()},
        }
    )
    for number in range(count):
        producer.produce(
            topic,
            key=f"key-{number % 7}",
            value=f"{topic} {number} ".encode() * 3,
            partition=number % partitions,
            headers=[("n", str(number).encode()), ("none", None)],
            timestamp=start_ms + number,
        )
    assert producer.flush(60) == 0


def run_once(file: Path, *, ok: bool = True, accepts_loss: bool = False) -> dict[str, Any]:
    """Run the mirror in this process until everything is copied; the last event."""
    events: list[dict[str, Any]] = []
    MirrorRun(load(file), events.append, once=True, accepts_loss=accepts_loss).run()
    assert events[-1]["ok"] is ok, events
    return events[-1]


class Process:
    """`odradek mirror`, which can be killed."""

    def __init__(self, file: Path, *options: str) -> None:
        self.command = odradek_command("mirror", str(file), "--json", *options)
        self.log = file.with_name(f"{file.stem}-{id(self)}.log")
        self.process: subprocess.Popen[bytes] | None = None
        self._before = 0  # events of earlier lives

    def start(self) -> None:
        self._before = len(self.events) if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=dict(os.environ))

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def check(self) -> None:
        """Fail if it has ended by itself."""
        assert self.process is None or self.process.poll() is None, self.log.read_text()[-4000:]

    def end(self) -> int:
        assert self.process is not None
        self.process.terminate()
        status, self.process = self.process.wait(60), None
        return status

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    @property
    def is_assigned(self) -> bool:
        """True once this life is a member of the group."""
        return any(one["event"] == "assigned" for one in self.events[self._before :])

    @property
    def partitions(self) -> list[str] | None:
        """The partitions that it was assigned last."""
        return next((one["partitions"] for one in reversed(self.events) if one["event"] == "assigned"), None)


class Inside:
    """A mirror in this process, which looks after topics and groups all the time."""

    def __init__(self, file: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self._run = MirrorRun(load(file), self.events.append, upkeep_s=0.2)
        self._thread = threading.Thread(target=self._run.run)

    def start(self) -> None:
        self._thread.start()

    def kill(self) -> None:
        """It cannot be killed: it ends."""
        self.end()

    def end(self) -> bool:
        self._run.stop()
        self._thread.join()
        return bool(self.events[-1].get("ok"))

    @property
    def partitions(self) -> list[str] | None:
        return next((one["partitions"] for one in reversed(self.events) if one["event"] == "assigned"), None)


@contextmanager
def running(*processes: "Process | Inside") -> Iterator[None]:
    for one in processes:
        one.start()
    try:
        yield
    finally:
        for one in processes:
            one.kill()


def commit(bootstrap: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(
        offsets=[TopicPartition(*place, offset) for place, offset in offsets.items()], asynchronous=False
    )
    consumer.close()


def committed(bootstrap: str, group: str, topic: str, partitions: int = 2) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], timeout=30)
    consumer.close()
    return {one.partition: one.offset for one in found if one.offset >= 0}
