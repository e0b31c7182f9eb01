"""MirrorMaker 2 copies a topic between two of our clusters exactly once, killed on the way together with brokers.

It also carries over how far a group has read: there the group goes on without skipping a record.
"""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.peer.big_clients import (
    CLUSTER,
    PARTITIONS,
    Feed,
    Program,
    Progress,
    committed,
    create_topics,
    kill_both,
    running,
)
from tests.processes.nodes import BOTH, cluster, until
from tools.peer.kafka import free_port

COPY = "west.orders"  # of the topic "orders"
GROUP = "billing"
UNREAD = 10  # records of each partition

pytestmark = pytest.mark.timeout(900)


def settings(west: str, east: str, port: int) -> dict[str, str]:
    return {
        "clusters": "west, east",
        "west.bootstrap.servers": west,
        "east.bootstrap.servers": east,
        "west->east.enabled": "true",
        "west->east.topics": "orders",
        "west->east.groups": GROUP,
        "east->west.enabled": "false",
        "emit.heartbeats.enabled": "false",
        "tasks.max": "2",
        "replication.factor": "3",
        "east.exactly.once.source.support": "enabled",
        "east.offset.flush.interval.ms": "200",
        "east.session.timeout.ms": "10000",
        "east.scheduled.rebalance.max.delay.ms": "1000",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://127.0.0.1:{port}",
        "refresh.groups.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
    }


def test_a_mirror_is_exact_through_kills(java_classes: Path, tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("west", "east")]
    for home in homes:
        home.mkdir()
    roles = dict.fromkeys((1, 2, 3), BOTH)
    with cluster(homes[0], roles, **CLUSTER) as west, cluster(homes[1], roles, **CLUSTER) as east:
        create_topics(west.bootstrap, "orders")
        mirrors = [
            Program(
                "org.apache.kafka.connect.mirror.MirrorMaker",
                java_classes,
                tmp_path / f"mirror-{number}",
                settings(west.bootstrap, east.bootstrap, free_port()),
            )
            for number in range(2)
        ]
        with running(*mirrors):
            with Feed(west.bootstrap, "orders") as feed:
                until(lambda: COPY in east[1].topics(), f"{COPY} is there")
                progress = Progress(east.bootstrap, COPY, *mirrors)
                progress.await_more()
                kill_both(mirrors[0], east, east[1], progress)
                kill_both(mirrors[1], west, west[1], progress)
            progress.await_records(sum(map(len, feed.written.values())))
            progress.close()
            copies = committed(east.bootstrap, COPY)
            assert {
                number: [value for _, _, value in records] for number, records in copies.items()
            } == feed.written
            read_most(west.bootstrap, feed.written)
            carried = until(lambda: carried_offsets(east.bootstrap), "the group's offsets are carried over")
        for number, offset in carried.items():
            unread = [value for at, _, value in copies[number] if at >= offset]
            assert unread[-UNREAD:] == feed.written[number][-UNREAD:], "the group would skip records"


def read_most(bootstrap: str, written: dict[int, list[str]]) -> None:
    """Commits what a member of the group commits that has read all but the last records of each partition."""
    places = [TopicPartition("orders", number, len(values) - UNREAD) for number, values in written.items()]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def carried_offsets(bootstrap: str) -> dict[int, int] | None:
    """The group's offsets in the copy; None unless it has one in each partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    found = consumer.committed([TopicPartition(COPY, number) for number in range(PARTITIONS)], timeout=30)
    consumer.close()
    offsets = {one.partition: one.offset for one in found if one.offset >= 0}
    return offsets if len(offsets) == PARTITIONS else None
