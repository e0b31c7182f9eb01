"""`odradek.testing.broker()`: its life, its faults, and that nothing is left behind."""

import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from odradek.errors import KafkaError
from odradek.testing import Broker, BrokerFailed, broker


def produce(kafka: Broker, topic: str, *values: str, timeout_ms: int = 30_000) -> int:
    """Messages that were delivered."""
    failures = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "message.timeout.ms": timeout_ms})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(60) == 0
    return len(values) - len(failures)


def consume(kafka: Broker, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "test"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, 30)
    consumer.close()
    return [message.value().decode() for message in messages]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_runs_for_the_length_of_a_block() -> None:
    with broker(num_partitions=3, auto_create_topics_enable=True) as kafka:
        assert kafka.settings == {"num.partitions": "3", "auto.create.topics.enable": "true"}
        topic = kafka.create_topic()
        assert produce(kafka, topic, "hello") == 1
        assert consume(kafka, topic, 1) == ["hello"]
        assert "started" in kafka.log
        pid, directory = kafka.pid, kafka._directory
        assert pid is not None
        assert directory.exists()
    assert not is_alive(pid)
    assert not directory.exists()


def test_a_crash_loses_nothing_that_was_acknowledged_and_a_restart_keeps_the_address() -> None:
    with broker() as kafka:
        topic = kafka.create_topic(config={"retention_ms": 1_000_000})
        before = kafka.bootstrap
        produce(kafka, topic, "one")
        kafka.crash()
        assert not kafka.is_running
        assert produce(kafka, topic, "lost", timeout_ms=500) == 0
        kafka.restart()
        assert kafka.bootstrap == before
        kafka.restart()
        assert produce(kafka, topic, "two") == 1
        assert consume(kafka, topic, 2) == ["one", "two"]


@pytest.mark.skipif(sys.platform != "linux", reason="a port can be kept on Linux only")
def test_nobody_else_gets_its_port_while_it_is_down() -> None:
    with broker() as kafka:
        port = int(kafka.bootstrap.rpartition(":")[2])
        kafka.crash()
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect(("127.0.0.1", port))
        with socket.socket() as thief, pytest.raises(OSError, match="in use"):
            thief.bind(("127.0.0.1", port))
        kafka.restart()
        assert kafka.bootstrap.endswith(f":{port}")


def test_a_paused_broker_answers_nobody_until_it_goes_on() -> None:
    with broker() as kafka:
        topic = kafka.create_topic()
        with kafka.paused():
            assert kafka.is_paused
            consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "test"})
            with pytest.raises(KafkaException):
                consumer.list_topics(timeout=0.5)
        assert not kafka.is_paused
        assert topic in consumer.list_topics(timeout=30).topics
        consumer.close()


def test_healing_undoes_every_fault() -> None:
    with broker() as kafka:
        kafka.pause()
        kafka.heal()
        kafka.create_topic()
        kafka.crash()
        kafka.heal()
        kafka.create_topic()
        first = kafka.pid
        kafka.heal()
        assert kafka.pid == first


def test_a_death_that_nobody_asked_for_is_told() -> None:
    with broker() as kafka:
        assert kafka.pid is not None
        os.kill(kafka.pid, signal.SIGKILL)
        wait_for_end(kafka.pid)
        with pytest.raises(BrokerFailed, match="died with status -9"):
            kafka.heal()
        kafka.create_topic()


def test_what_cannot_start_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    why = r"unknown setting num\.partition; did you mean num\.partitions"
    with pytest.raises(BrokerFailed, match=why), broker(num_partition=3):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_topic_that_the_broker_refuses_is_told() -> None:
    with broker() as kafka, pytest.raises(KafkaError, match="already exists"):
        kafka.create_topic(kafka.create_topic())


def test_it_ends_with_its_owner() -> None:
    """Even if that is killed, and can clean up nothing."""
    code = "\n".join(
        [
            "import os, signal, sys",
            "from odradek.testing import Broker",
            "kafka = Broker(); kafka.start()",
            "print(kafka.pid, kafka._directory, flush=True)",
            "os.kill(os.getpid(), signal.SIGKILL)",
        ]
    )
    owner = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert owner.returncode == -9
    pid, directory = owner.stdout.split()
    wait_for_end(int(pid))
    assert "stopped" in (Path(directory) / "broker.log").read_text()
    shutil.rmtree(directory)


def wait_for_end(pid: int) -> None:
    """Await the end of a process that is not our child."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        assert selector.select(60), f"process {pid} runs on"
    os.close(descriptor)
