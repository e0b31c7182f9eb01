"""A real client in the rack of a follower (KIP-392): it reads there, and from the leader once the follower is gone."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.wire.messages.metadata import MetadataResponsePartition
from tests.processes.nodes import BOTH, Nodes, cluster, until
from tests.processes.test_clients_on_a_cluster import Confluent
from tests.support import run_command

TOPIC = "t"
SETTINGS = {
    "broker_rack": "rack-{node}",
    "replica_selector_class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "group_initial_rebalance_delay_ms": "0",
}
AT_ONCE = 40

pytestmark = pytest.mark.timeout(300)


class Reading:
    """librdkafka, and what it says of itself."""

    def __init__(self, bootstrap: str, rack: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self.values: list[str] = []
        self._statistics: dict[str, Any] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "not used",
                "client.rack": rack,
                "auto.offset.reset": "earliest",
                "statistics.interval.ms": 100,
                "stats_cb": self._take_statistics,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def _take_statistics(self, text: str) -> None:
        self._statistics = json.loads(text)

    def reads(self, values: list[str]) -> Callable[[], bool]:
        """True once exactly these were read, in this order."""

        def look() -> bool:
            for message in self._consumer.consume(AT_ONCE, 0.2):
                if message.error() is None:
                    self.values.append(message.value().decode())
            assert self.values == values[: len(self.values)]
            return len(self.values) == len(values)

        return look

    def fetches_from(self, node_id: int) -> int:
        """Requests so far."""
        self._consumer.poll(0)  # calls back with statistics
        brokers = self._statistics.get("brokers", {}).values()
        return sum(broker["req"].get("Fetch", 0) for broker in brokers if broker["nodeid"] == node_id)

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def reading(bootstrap: str, rack: str) -> Iterator[Reading]:
    consumer = Reading(bootstrap, rack)
    try:
        yield consumer
    finally:
        consumer.close()


def place(nodes: Nodes) -> MetadataResponsePartition:
    """Return where the partition is, once all its replicas are in sync."""

    def look() -> MetadataResponsePartition | None:
        topic = nodes.leader().topics().get(TOPIC)
        return topic.partitions[0] if topic and len(topic.partitions[0].isr_nodes) == 3 else None

    return until(look, "three replicas are in sync")


def test_a_consumer_reads_from_the_follower_in_its_rack_while_that_is_there(tmp_path: Path) -> None:
    with cluster(tmp_path, {1: BOTH, 2: BOTH, 3: BOTH}, **SETTINGS) as nodes:
        options = ("--partitions", "1", "--replication-factor", "3", "-b", nodes.bootstrap)
        done = run_command("topic", "create", TOPIC, *options)
        assert done.returncode == 0, done.stderr
        leader = place(nodes).leader_id
        follower = next(node for node in nodes if node.id not in (leader, nodes.leader().id))
        values = [f"value-{number}" for number in range(3 * AT_ONCE)]

        def produce(start: int) -> list[str]:
            records = [(0, value) for value in values[start : start + AT_ONCE]]
            Confluent().produce(nodes.bootstrap, TOPIC, records)
            return values[: start + AT_ONCE]

        written = produce(0)
        with reading(nodes.bootstrap, f"rack-{follower.id}") as consumer:
            until(consumer.reads(written), "the first records are read")
            until(lambda: consumer.fetches_from(follower.id) > 1, "they come from the follower")
            until(consumer.reads(produce(AT_ONCE)), "the next records are read")
            at_leader = consumer.fetches_from(leader)
            at_follower = consumer.fetches_from(follower.id)
            until(lambda: consumer.fetches_from(follower.id) > at_follower + 1, "it waits at the follower")
            assert consumer.fetches_from(leader) == at_leader, "the leader was asked only where to read"
            follower.kill()
            until(consumer.reads(produce(2 * AT_ONCE)), "the last records are read")
            until(lambda: consumer.fetches_from(leader) > at_leader, "they come from the leader")
