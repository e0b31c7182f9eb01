"""A stream from topic to topic that goes on while the broker dies that leads a part of both."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.processes.nodes import BOTH, Nodes, cluster, until
from tests.processes.record_faults import client, ends_of
from tests.processes.record_load import read_all
from tests.support import run_command

SOURCE, TARGET = "source", "target"
PARTITIONS = 3
TIMEOUT_S = 300  # of Spark, which compiles a lot when it starts


@contextmanager
def replicated_topics(home: Path) -> Iterator[Nodes]:
    with cluster(home, {1: BOTH, 2: BOTH, 3: BOTH}, min_insync_replicas="2") as nodes:
        for topic in (SOURCE, TARGET):
            options = ("--partitions", str(PARTITIONS), "--replication-factor", "3", "-b", nodes.bootstrap)
            done = run_command("topic", "create", topic, *options)
            assert done.returncode == 0, done.stderr
        yield nodes


def check_a_stream_goes_on_when_a_broker_dies(spark: Any, connector: str, tmp_path: Path) -> None:
    """`connector`: the format of source and sink."""
    with replicated_topics(tmp_path) as nodes:
        servers = {"kafka.bootstrap.servers": nodes.bootstrap}
        reader = spark.readStream.format(connector).options(**servers)
        rows = reader.option("subscribe", SOURCE).option("startingOffsets", "earliest").load()
        writer = rows.select("key", "value").writeStream.format(connector).options(**servers)
        checkpoint = str(tmp_path / "checkpoint")
        query = writer.option("topic", TARGET).option("checkpointLocation", checkpoint).start()
        try:
            fill(nodes, range(100))
            until(lambda: any(one.numInputRows for one in query.recentProgress), "some is copied", TIMEOUT_S)
            victim = nodes[leader_of(nodes, SOURCE)]
            victim.kill()
            fill(nodes, range(100, 200))
            query.processAllAvailable()
        finally:
            query.stop()
        assert copied(nodes) == set(range(200))


def fill(nodes: Nodes, numbers: range) -> None:
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": nodes.bootstrap, "acks": "all"})
    for number in numbers:
        producer.produce(
            SOURCE,
            str(number),
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert not failed


def leader_of(nodes: Nodes, topic: str) -> int:
    broker = nodes.brokers[0]
    found = until(lambda: broker.topics().get(topic), f"broker {broker.id} knows {topic}")
    return found.partitions[0].leader_id


def copied(nodes: Nodes) -> set[int]:
    with client(nodes) as own:
        ends = {partition.partition: end for partition, end in ends_of(own, TARGET).items()}
    found = read_all(nodes.bootstrap, TARGET, ends, TIMEOUT_S)
    return {int(value) for values in found.values() for value in values.values()}
