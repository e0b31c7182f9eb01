"""Measure what a change of the metadata costs in a large cluster, and a start after a long history.

Changes: one record is applied to an image of 10,000 partitions, as 10,000 topics and as one, and the broker acts on it.
Starts: a metadata log is opened with and without a snapshot, for 10,000 topics, and for 200,000 changes to 100.
All figures are CPU time, so that they mean something on a busy machine.
"""

import argparse
import asyncio
import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

from rich.console import Console
from rich.table import Table

from odradek.config.broker import BrokerConfig
from odradek.host.real import RealHost
from odradek.metadata.delta import apply_records
from odradek.metadata.image import MetadataImage
from odradek.metadata.log import MetadataLog
from odradek.metadata.properties import MetaProperties
from odradek.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from odradek.metadata.snapshotting import Policy, Snapshotter
from odradek.replication.replica import Replica
from odradek.services.partitions.local_partitions import LocalPartitions
from odradek.storage.config import LogConfig
from odradek.storage.disk.files import DiskFiles
from odradek.storage.store import LogStore
from odradek.wire.codec import Steps, drain

PARTITIONS = 10_000
CHANGES = 200_000
ALIVE = 100
AIM_MS = 5.0  # for a change that is applied among so many partitions
ELSEWHERE = [2]
PROPERTIES = MetaProperties("a-cluster", 1, UUID(int=1 << 64))
NOW = Policy(max_bytes=1, max_interval_ms=0, retention_bytes=0, retention_ms=-1)


def topic_id(number: int) -> UUID:
    return UUID(int=number + 1)


def creation(number: int, partitions: int = 1) -> Iterator[MetadataRecord]:
    yield TopicRecord(f"topic-{number}", topic_id(number))
    for index in range(partitions):
        yield PartitionRecord(
            index, topic_id(number), ELSEWHERE, ELSEWHERE, leader=2, directories=[topic_id(9)]
        )


# Changes


def nothing(replica: Replica) -> None:
    """Nobody else is there to act on it."""


def change_costs(topics: int, partitions: int, console: Console, directory: Path) -> float:
    """Prints what changes cost; returns what the longest of them took, in milliseconds."""
    records = [record for number in range(topics) for record in creation(number, partitions)]
    image, _ = apply_records(MetadataImage("c"), records, 0, 1)
    config = BrokerConfig({"log.dirs": str(directory)})
    host = RealHost(asyncio.get_running_loop())
    store = LogStore(DiskFiles(), str(directory), rng=random.Random(0))
    local = LocalPartitions(1, host, store, config, nothing, nothing, nothing, lambda image: True)
    local.open_all(image)
    changes: dict[str, Callable[[int], list[MetadataRecord]]] = {
        "leader of a partition": lambda number: [
            PartitionChangeRecord(number % partitions, topic_id(number % topics), leader=number % 3)
        ],
        "setting of a topic": lambda number: [ConfigRecord(2, f"topic-{number % topics}", "k", str(number))],
        "new topic": lambda number: list(creation(topics + number)),
    }
    gc.collect()
    gc.freeze()  # as a broker does
    table = Table("change", "median µs", "99 % µs", "longest µs", title=f"{topics} topics of {partitions}")
    longest = 0.0
    for name, change in changes.items():
        times, now = [], image
        for number in range(1000):
            records = change(number)
            start = time.process_time()
            now, delta = apply_records(now, records, number, 1)
            local.apply(delta)
            times.append((time.process_time() - start) * 1e6)
        times.sort()
        figures = (statistics.median(times), times[989], times[-1])
        table.add_row(name, *(f"{figure:,.0f}" for figure in figures))
        longest = max(longest, times[-1])
    console.print(table)
    return longest / 1000


# Starts


def open_log(directory: Path) -> MetadataLog:
    files = DiskFiles()
    return MetadataLog.open(
        files, str(directory), PROPERTIES, LogConfig(delete=False), int(time.time() * 1000)
    )


async def finish(steps: Steps[int]) -> int:
    return drain(steps)


async def start_costs(
    title: str, commits: Iterator[list[MetadataRecord]], table: Table, directory: Path
) -> None:
    log = open_log(directory)
    for number, records in enumerate(commits):
        log.append(records, int(time.time() * 1000))
        if number % 1000 == 0:
            log.settle()
    log.settle()
    log.close()
    without, log = timed_open(directory)
    start = time.process_time()
    await Snapshotter(log, NOW, RealHost(asyncio.get_running_loop()), finish).maintain()
    writing = time.process_time() - start
    size = log.snapshots.size_bytes
    log.close()
    with_snapshot, log = timed_open(directory)
    log.close()
    table.add_row(title, f"{without:.2f}", f"{with_snapshot:.3f}", f"{writing:.2f}", f"{size / 1e6:.2f}")


def timed_open(directory: Path) -> tuple[float, MetadataLog]:
    gc.collect()
    start = time.process_time()
    log = open_log(directory)
    return time.process_time() - start, log


def ten_thousand_topics() -> Iterator[list[MetadataRecord]]:
    return (list(creation(number)) for number in range(PARTITIONS))


def long_history() -> Iterator[list[MetadataRecord]]:
    yield from (list(creation(number)) for number in range(ALIVE))
    for number in range(CHANGES):
        yield [PartitionChangeRecord(0, topic_id(number % ALIVE), leader=2, isr=ELSEWHERE)]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as name:
        longest = 0.0
        for shape in ((PARTITIONS, 1), (1, PARTITIONS)):
            directory = Path(name, f"changes-{shape[0]}")
            directory.mkdir()
            longest = max(longest, change_costs(*shape, console, directory))
        console.print(f"the longest change took {longest:.2f} ms; the aim is {AIM_MS:g} ms\n")
        table = Table("start", "log alone s", "with a snapshot s", "to write it s", "its size MB")
        histories = {
            f"{PARTITIONS:,} topics": ten_thousand_topics(),
            f"{CHANGES:,} changes to {ALIVE} topics": long_history(),
        }
        for number, (title, commits) in enumerate(histories.items()):
            directory = Path(name, str(number))
            directory.mkdir()
            await start_costs(title, commits, table, directory)
        console.print(table)


if __name__ == "__main__":
    asyncio.run(main())
