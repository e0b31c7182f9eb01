"""A broker that writes snapshots of its metadata: what they cost others, and what a start makes of them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest

from odradek.errors import DamagedData
from odradek.metadata.records import PartitionChangeRecord, PartitionRecord, TopicRecord
from odradek.services.partitions.local_partitions import LocalPartitions
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.in_process import InProcess
from tests.broker.test_crash_consistency import disk_with

AT_ONCE = {
    "metadata.log.max.record.bytes.between.snapshots": "1",
    "metadata.max.retention.bytes": "0",
    "offsets.topic.num.partitions": "1",
}
PARTITION = "__cluster_metadata-0"
ELSEWHERE = [2]  # replicas on another broker: no files are made here


def live(
    data_dir: str,
    files: SimulatedFiles,
    scenario: Callable[[InProcess], Awaitable[None]],
    settings: Mapping[str, str] = AT_ONCE,
) -> None:
    async def main() -> None:
        async with InProcess(data_dir, files, settings) as broker:
            await scenario(broker)

    asyncio.run(main())


@pytest.fixture
def data_dir(tmp_path: Path) -> str:
    return str(tmp_path)


@pytest.fixture
def files(data_dir: str) -> SimulatedFiles:
    return disk_with(data_dir)


async def create_and_snapshot(broker: InProcess) -> None:
    for name in ("kept", "gone"):
        await broker.create_topic(name, retention_ms="77")
        await broker.produce(name, [(b"k", b"v")])
    await broker.broker.metadata.maintain()
    await broker.ask(DeleteTopicsRequest([DeleteTopicState("gone")], timeout_ms=1000), 6)
    await broker.broker.metadata.maintain()


async def check(broker: InProcess) -> None:
    image = broker.broker.metadata.image
    assert set(image.topics) == {"kept"} and image.topic_overrides("kept") == {"retention.ms": "77"}
    assert [record.value for record in broker.records("kept")] == [b"v"]


def snapshots(files: SimulatedFiles, data_dir: str) -> list[str]:
    return [
        entry.name for entry in files.list(f"{data_dir}/{PARTITION}") if entry.name.endswith(".checkpoint")
    ]


def test_topics_are_there_after_a_start_from_a_snapshot(data_dir: str, files: SimulatedFiles) -> None:
    live(data_dir, files, create_and_snapshot)
    assert len(snapshots(files, data_dir)) == 1
    assert f"{data_dir}/{PARTITION}/{0:020d}.log" not in files.contents()
    live(data_dir, files.twin(), check)
    files.crash()
    live(data_dir, files, check)


def test_without_its_snapshot_a_broker_does_not_start_and_deletes_nothing(
    data_dir: str, files: SimulatedFiles
) -> None:
    """Or all logs would be strays."""
    live(data_dir, files, create_and_snapshot)
    (name,) = snapshots(files, data_dir)
    path = f"{data_dir}/{PARTITION}/{name}"
    data = files.read(path)
    names = {entry.name for entry in files.list(data_dir)}
    for damaged in (None, b"", data[:-1], data[:100] + b"\0" + data[101:]):
        disk = files.twin()
        disk.remove(path)
        if damaged is not None:
            disk.create(path).write_at(0, damaged)
        with pytest.raises(DamagedData, match=r"Restore .* from a backup"):
            live(data_dir, disk, check)
        assert {entry.name for entry in disk.list(data_dir)} == names
        disk.create(path).write_at(0, data)
        live(data_dir, disk, check)


def test_a_large_snapshot_is_written_in_many_turns(data_dir: str, files: SimulatedFiles) -> None:
    """The clock of this test says that each look at it is a millisecond later."""

    async def scenario(broker: InProcess) -> None:
        metadata, clock, turns = broker.broker.metadata, count(), 0
        partitions = [PartitionRecord(index, UUID(int=1), ELSEWHERE, ELSEWHERE) for index in range(5000)]
        metadata._commit([TopicRecord("large", UUID(int=1)), *partitions])
        metadata.turns.clock = lambda: next(clock) / 1000
        task = asyncio.create_task(metadata.maintain())
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        await task
        assert turns > 10
        assert len(snapshots(files, data_dir)) == 1

    live(data_dir, files, scenario)


def test_a_full_disk_costs_the_snapshot_and_nothing_else(
    data_dir: str, files: SimulatedFiles, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.create_topic("kept", retention_ms="77")
        await broker.produce("kept", [(b"k", b"v")])
        files.free_bytes = 0
        for _ in range(3):
            await broker.broker.metadata.maintain()
        assert caplog.text.count("cannot write a metadata snapshot") == 1
        assert broker.broker.failure is None
        files.free_bytes = None
        await broker.create_topic("second")
        await broker.ask(DeleteTopicsRequest([DeleteTopicState("second")], timeout_ms=1000), 6)

    live(data_dir, files, scenario)
    assert snapshots(files, data_dir) == []
    live(data_dir, files, check)


def test_a_log_that_fails_while_it_rolls_stops_the_broker(data_dir: str, files: SimulatedFiles) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.create_topic("kept", retention_ms="77")
        await broker.produce("kept", [(b"k", b"v")])
        files.fail_syncs = 1
        await broker.broker.metadata.maintain()
        assert broker.broker.failure is not None

    live(data_dir, files, scenario)
    files.crash()
    live(data_dir, files, check)


@pytest.mark.parametrize("partitions", [10, 200])
def test_a_change_of_one_partition_is_a_look_at_one_partition(
    data_dir: str, files: SimulatedFiles, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[int] = []
    opened = LocalPartitions._present

    async def scenario(broker: InProcess) -> None:
        response = await broker.ask(CreateTopicsRequest([CreatableTopic("t", partitions, 1)]), 7)
        topic_id = response.topics[0].topic_id
        for _ in range(partitions + 1):
            await asyncio.sleep(0)
        monkeypatch.setattr(
            LocalPartitions,
            "_present",
            lambda self, topic, index: looked_at.append(index) or opened(self, topic, index),
        )
        broker.broker.metadata._commit([PartitionChangeRecord(7, topic_id, leader=1)])
        assert looked_at == [7]
        assert broker.broker.replicas.get("t", 7).leader_epoch == 1

    live(data_dir, files, scenario)
