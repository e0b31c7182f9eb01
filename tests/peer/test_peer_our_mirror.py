"""Our mirror to Apache Kafka and from it: what arrives is what was there, also through kills; groups go with it."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.mirror.lab import (
    Process,
    codecs_of,
    commit,
    committed,
    fill,
    ledger,
    run_once,
    running,
    write_file,
)
from tests.processes.nodes import until
from tests.spark.spark_topics import Topics
from tests.support import RunningBroker, run_command
from tools.peer.kafka import KafkaPeer

GROUP = "mirrored-readers"


@pytest.fixture(params=["to Kafka", "from Kafka"])
def pair(request: pytest.FixtureRequest, ours: RunningBroker, kafka: KafkaPeer) -> tuple[str, str, str, str]:
    """Bootstrap servers of source and target, and their names."""
    if request.param == "to Kafka":
        return ours.bootstrap, kafka.bootstrap, "ours", "kafka"
    return kafka.bootstrap, ours.bootstrap, "kafka", "ours"


def write_aborted(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for number in range(4):
        producer.begin_transaction()
        for value in range(20):
            producer.produce(topic, f"{number}/{value}", partition=value % 2)
        if number % 2:
            producer.flush(30)
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def test_everything_arrives_once(pair: tuple[str, str, str, str], tmp_path: Path) -> None:
    source, target, name, other = pair
    for topic, config in {
        "mirrored": {"retention_ms": "86400000"},
        "mirrored-stamped": {"message_timestamp_type": "LogAppendTime"},
    }.items():
        Topics(source).create(2, topic, **config)
        for codec in ("none", "lz4", "zstd", "gzip", "snappy"):
            fill(source, topic, 40, start_ms=time.time_ns() // 1_000_000, compression_type=codec)
        write_aborted(source, topic)
    file = write_file(tmp_path, source, target, 'pattern = "mirrored.*"', names=(name, other))
    assert run_once(file)["records"] == 2 * (200 + 40)
    for topic in ("mirrored", "mirrored-stamped"):
        assert ledger(target, f"{name}.{topic}") == ledger(source, topic)
        assert codecs_of(target, f"{name}.{topic}") == codecs_of(source, topic)
    described = run_command("-b", target, "topic", "describe", f"{name}.mirrored", "--json")
    assert '"retention.ms": "86400000"' in described.stdout


def test_kills_and_groups(pair: tuple[str, str, str, str], tmp_path: Path) -> None:
    source, target, name, other = pair
    Topics(source).create(2, "mirrored-again")
    file = write_file(
        tmp_path, source, target, 'names = ["mirrored-again"]', f'names = ["{GROUP}"]', names=(name, other)
    )
    one, two = Process(file), Process(file)
    copy = f"{name}.mirrored-again"
    with running(one, two):
        until(lambda: one.is_assigned and two.is_assigned, "both are members")
        for victim in (one, two, one):
            fill(
                source, "mirrored-again", 400, start_ms=time.time_ns() // 1_000_000
            )  # not so old as to be deleted
            victim.kill()
            victim.start()
            until(lambda victim=victim: victim.is_assigned, "it is a member again")
        commit(source, GROUP, {("mirrored-again", 0): 300, ("mirrored-again", 1): 600})
        until(lambda: ledger(target, copy) == ledger(source, "mirrored-again"), "everything is copied")
        carried = until(
            lambda: found if len(found := committed(target, GROUP, copy)) == 2 else None,
            "the group is carried over",
        )
    assert 250 <= carried[0] <= 400 and 550 <= carried[1] <= 700
    back = run_command("mirror", "offsets", str(file), "--group", GROUP, "--back", "--json")
    assert back.returncode == 0, back.stderr
