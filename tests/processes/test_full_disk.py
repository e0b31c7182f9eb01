"""A leader's disk becomes full, in a cluster of processes: producers go on, and the broker comes back by itself."""

from confluent_kafka import KafkaError, Producer

from odradek.testing import cluster
from tests.support import run_command

TOPIC = "t"
PATIENCE_S = 60.0


def produce(bootstrap: str, values: list[str]) -> list[KafkaError | None]:
    told: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for value in values:
        producer.produce(TOPIC, value, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(PATIENCE_S) == 0
    return told


def test_producers_go_on_while_a_leaders_disk_is_full() -> None:
    with cluster(brokers=3) as nodes:
        nodes.create_topic(TOPIC, 1)
        leader = nodes.leader(TOPIC, 0)
        assert produce(nodes.bootstrap, ["before"]) == [None]
        full = leader.faults.fill_disk()
        assert produce(nodes.bootstrap, [f"meanwhile-{number}" for number in range(20)]) == [None] * 20
        assert full.happened
        assert nodes.leader(TOPIC, 0) is not leader
        assert "is full: " in leader.log and "to other in-sync replicas" in leader.log
        status = run_command("cluster", "status", "-b", nodes.bootstrap)
        assert status.returncode == 1
        assert f"broker {leader.id} has no room for records: its disk is full" in status.stdout
        full.undo()
        nodes.wait_until_in_sync(TOPIC, timeout=PATIENCE_S)
        assert "has room again" in leader.log
