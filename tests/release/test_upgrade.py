"""Directories that releases have written are opened by this version, with all that is in them.

`python -m tests.release` makes one for the current version, at its release; docs/STABILITY.md tells what is promised.
"""

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.release.contents import (
    CODECS,
    COMMITTED,
    COMPACTED,
    GROUP,
    OFFSETS,
    PLAIN,
    RECORDS,
    RETENTION_MS,
    TRANSACTIONAL,
    value_of,
)
from tests.support import RunningBroker, odradek_command, run_command, running_broker

DIRECTORIES = Path(__file__).parent / "directories"
RELEASES = sorted(path.name.removesuffix(".tar.gz") for path in DIRECTORIES.glob("*.tar.gz"))


@pytest.fixture(scope="module", params=RELEASES)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    """This version, on what an earlier one has written."""
    home = tmp_path_factory.mktemp("upgraded")
    with tarfile.open(DIRECTORIES / f"{request.param}.tar.gz") as archive:
        archive.extractall(home / "data", filter="data")
    with running_broker(home) as started:
        yield started


def read(broker: RunningBroker, topic: str, partition: int) -> list[tuple[bytes | None, bytes | None]]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "x", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append((message.key(), message.value()))
    consumer.close()
    return found


def test_there_is_one() -> None:
    assert "0.1.0" in RELEASES


def test_records_of_every_codec(broker: RunningBroker) -> None:
    for partition in (0, 1):
        wanted = [
            (f"{number}".encode(), value_of(codec, number).encode())
            for codec in CODECS
            for number in range(partition, RECORDS, 2)
        ]
        assert sorted(read(broker, PLAIN, partition)) == sorted(wanted)


def test_compacted_records_and_what_is_written_now(broker: RunningBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    producer.produce(COMPACTED, "new", "key-new")
    assert producer.flush(30) == 0
    found = dict(read(broker, COMPACTED, 0))
    last = {
        f"key-{number % 5}".encode(): value_of("idempotent", number).encode() for number in range(RECORDS)
    }
    assert found == {**last, b"key-new": b"new"}


def test_transactions(broker: RunningBroker) -> None:
    assert [value for _, value in read(broker, TRANSACTIONAL, 0)] == [COMMITTED.encode()]
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "upgrade"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.abort_transaction(30)


def test_offsets_and_settings(broker: RunningBroker) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP})
    found = consumer.committed([TopicPartition(PLAIN, partition) for partition in OFFSETS], 30)
    assert {each.partition: each.offset for each in found} == OFFSETS
    consumer.close()
    shown = run_command("config", "describe", "topic", PLAIN, "-b", broker.bootstrap)
    assert str(RETENTION_MS) in shown.stdout


def test_a_directory_of_a_later_release_is_left_alone(tmp_path: Path) -> None:
    """This version must not touch what it does not know."""
    import subprocess

    with tarfile.open(DIRECTORIES / f"{RELEASES[-1]}.tar.gz") as archive:
        archive.extractall(tmp_path / "data", filter="data")
    file = tmp_path / "data" / "meta.properties"
    file.write_text(file.read_text().replace("version=1", "version=2"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*") if path.is_file()}
    command = odradek_command("up", "--port", "0", "--data-dir", str(tmp_path / "data"))
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert "has version 2, and this release knows only version 1" in result.stderr
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*") if path.is_file()}
    assert {path: at for path, at in after.items() if path.name != ".lock"} == before
