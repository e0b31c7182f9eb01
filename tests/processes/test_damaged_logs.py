"""All nodes are killed, and the logs of one of them are cut short while it is down: nothing acknowledged is lost.

Nobody knows which node was damaged, and they start in any order.
"""

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from odradek.model import TopicPartition
from tests.processes.nodes import BOTH, TIMEOUT_S, Node, Nodes, cluster, until
from tests.processes.record_faults import client, ends_of
from tests.processes.record_load import read_all
from tests.processes.replica_scan import check_replicas
from tests.support import run_command

TOPIC = "orders"
PARTITIONS = 6
RECORDS = 600
SETTINGS = {"default_replication_factor": "3", "min_insync_replicas": "2"}
COMBINED = {1: BOTH, 2: BOTH, 3: BOTH}


def produce(nodes: Nodes, name: str) -> set[str]:
    """Produce with acks=all, in many small batches; all of them are acknowledged."""
    acknowledged: set[str] = set()

    def told(error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert error is None, error
        assert isinstance(value, bytes)
        acknowledged.add(value.decode())

    producer = Producer({"bootstrap.servers": nodes.bootstrap, "acks": "all", "batch.num.messages": 10})
    for number in range(RECORDS):
        producer.produce(TOPIC, f"{name}-{number}", partition=number % PARTITIONS, on_delivery=told)
    assert producer.flush(TIMEOUT_S) == 0
    assert len(acknowledged) == RECORDS
    return acknowledged


def read(nodes: Nodes) -> set[str]:
    starts = dict.fromkeys(range(PARTITIONS), 0)
    found = read_all(nodes.bootstrap, TOPIC, starts, TIMEOUT_S)
    return {value.decode() for partition in found.values() for value in partition.values()}


def cut_logs(node: Node) -> None:
    """The last third of each log of the topic."""
    logs = sorted(node.data_dir.glob(f"{TOPIC}-*/*.log"))
    assert len(logs) == PARTITIONS
    for log in logs:
        size = log.stat().st_size
        with log.open("r+b") as file:
            file.truncate(size - size // 3)


def await_in_sync(nodes: Nodes) -> None:
    def look() -> bool:
        topic = nodes[1].topics()[TOPIC]
        return all(
            sorted(partition.isr_nodes) == [1, 2, 3] and partition.leader_id > 0
            for partition in topic.partitions
        )

    until(look, "all partitions are led, and all replicas in sync")


# tests/cluster simulates all of these, in any order.
@pytest.mark.parametrize(
    "order", ["last", *(pytest.param(order, marks=pytest.mark.long) for order in ("first", "at once"))]
)
@pytest.mark.parametrize("damaged", [1, 3])
def test_a_node_whose_logs_were_cut_short_loses_nothing(tmp_path: Path, order: str, damaged: int) -> None:
    with cluster(tmp_path, COMBINED, **SETTINGS) as nodes:
        topic = ("topic", "create", TOPIC, "--partitions", str(PARTITIONS), "-b", nodes.bootstrap)
        assert run_command(*topic).returncode == 0
        await_in_sync(nodes)
        acknowledged = produce(nodes, "before")
        for node in nodes:
            node.kill()
        cut_logs(nodes[damaged])
        others = nodes.others(nodes[damaged])
        if order == "last":
            nodes.start(*others)
            nodes[damaged].start()
        elif order == "first":
            nodes[damaged].launch()
            nodes.start(*others)
            nodes[damaged].await_started()
        else:
            nodes.start()
        await_in_sync(nodes)
        until(lambda: read(nodes) >= acknowledged, "everything acknowledged is read")
        acknowledged |= produce(nodes, "after")
        until(lambda: read(nodes) == acknowledged, "and nothing else")
        with client(nodes) as own:
            ends = ends_of(own, TOPIC)
        assert ends == {
            TopicPartition(TOPIC, index): 2 * RECORDS // PARTITIONS for index in range(PARTITIONS)
        }
        nodes.stop()
        assert check_replicas({node.id: node.data_dir for node in nodes}, ends)
