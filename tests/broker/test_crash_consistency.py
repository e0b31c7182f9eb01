"""Topics deleted, made again and emptied, logs compacted, files damaged, and crashes in between: what was answered
holds, nothing comes back from the dead, and nothing is lost.

A kill keeps what was written, a power cut only what was synced; both are tried on a copy of the disk.
"""

import asyncio
import errno
import random
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import DamagedData, ErrorCode
from odradek.records.batch import read_header
from odradek.services.upkeep.maintenance import Maintenance
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.in_process import InProcess
from tests.broker.test_durability import disk_with

TOPIC = "t"
TOPIC_RESOURCE = 2
METADATA_LOG = "__cluster_metadata-0/00000000000000000000.log"
NO_CLEANER = {"log.cleaner.enable": "false"}

Scenario = Callable[[InProcess], Awaitable[None]]


@pytest.fixture
def data_dir(tmp_path: Path) -> str:
    (tmp_path / "data").mkdir()
    return str(tmp_path / "data")


def live(data_dir: str, files: SimulatedFiles, scenario: Scenario, **settings: str) -> None:
    """A broker that is started, does this, and is abandoned without a goodbye."""

    async def life() -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        broker = InProcess(data_dir, files, named)
        await broker.broker.start()
        await scenario(broker)

    asyncio.run(life())


def survive(data_dir: str, files: SimulatedFiles, before: Scenario, after: Scenario) -> None:
    """Run `before`, and `after` on what it leaves: after a kill, and after a power cut."""
    live(data_dir, files, before)
    live(data_dir, files.twin(), after)
    files.crash()
    live(data_dir, files, after)


def values(*numbers: int) -> list[tuple[bytes | None, bytes | None]]:
    return [(None, b"%d" % number) for number in numbers]


async def delete_records(broker: InProcess, offset: int, *partitions: int, topic: str = TOPIC) -> list[Any]:
    asked = [DeleteRecordsPartition(partition, offset) for partition in partitions or (0,)]
    response = await broker.ask(DeleteRecordsRequest([DeleteRecordsTopic(topic, asked)], 5000), 2)
    results: list[Any] = response.topics[0].partitions
    return results


async def delete_topic(broker: InProcess) -> None:
    response = await broker.ask(DeleteTopicsRequest([DeleteTopicState(TOPIC)], timeout_ms=5000), 6)
    assert response.responses[0].error_code == 0


def content(broker: InProcess) -> tuple[int, list[bytes | None]] | None:
    """Return where the topic starts and what it has from there on; None if there is no such topic."""
    if TOPIC not in broker.broker.metadata.image.topics:
        return None
    start = broker.broker.replicas.get(TOPIC, 0).log.log_start_offset
    return start, [record.value for record in broker.records(TOPIC) if record.offset >= start]


# Names that are used again


def test_records_acknowledged_in_a_topic_made_again_survive_a_kill(data_dir: str) -> None:
    files = disk_with(data_dir)

    async def before(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        await broker.produce(TOPIC, values(*range(400)))
        assert (await delete_records(broker, 400))[0].low_watermark == 400
        broker.broker._maintenance.checkpoint()
        await delete_topic(broker)
        await broker.create_topic(TOPIC)
        assert (await broker.produce(TOPIC, values(*range(10)))).error_code == 0

    async def after(broker: InProcess) -> None:
        assert content(broker) == (0, [b"%d" % number for number in range(10)])

    survive(data_dir, files, before, after)


def test_a_deleted_partition_does_not_leave_its_high_watermark_to_the_next(data_dir: str) -> None:
    files = disk_with(data_dir)

    async def scenario(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        await broker.produce(TOPIC, values(1, 2, 3))
        await delete_topic(broker)
        await broker.create_topic(TOPIC)
        await asyncio.sleep(0)  # its log is made
        broker.broker._maintenance.checkpoint()
        assert set(broker.broker._store.high_watermarks.values()) <= {0}

    live(data_dir, files, scenario)


def test_a_checkpoint_that_failed_is_written_later(data_dir: str) -> None:
    files = disk_with(data_dir)

    async def scenario(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        await broker.produce(TOPIC, values(1, 2, 3))
        files.free_bytes = 0
        with pytest.raises(OSError, match="no space"):
            broker.broker._maintenance.checkpoint()
        files.free_bytes = None
        broker.broker._maintenance.checkpoint()
        assert files.read(f"{data_dir}/recovery-point-offset-checkpoint") == b"0\n1\nt 0 3\n"
        syncs = files.syncs
        broker.broker._maintenance.checkpoint()
        assert files.syncs == syncs

    live(data_dir, files, scenario)


def test_a_full_disk_costs_a_line_in_the_log_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        tried_again = asyncio.Event()

        def work() -> None:
            if "maintenance failed" in caplog.text:
                tried_again.set()
            raise OSError(errno.ENOSPC, "no space is left")

        maintenance = asyncio.ensure_future(Maintenance._repeat(0.001, work))
        await asyncio.wait_for(tried_again.wait(), 30)
        maintenance.cancel()

    asyncio.run(scenario())
    assert "trying again in 0.001 s: [Errno 28] no space is left" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_at_every_sync(seed: int, data_dir: str) -> None:
    """After each, the topic is as it was before the request under way, or as that would leave it."""
    files = disk_with(data_dir)
    cuts: list[tuple[SimulatedFiles, list[Any]]] = []
    allowed: list[Any] = [None]
    files.on_sync = lambda: cuts.append((files.twin(), list(allowed)))

    async def scenario(broker: InProcess) -> None:
        async def step(work: Awaitable[Any], outcome: Any) -> None:
            allowed.append(outcome)
            await work
            del allowed[:-1]
            assert content(broker) == outcome

        for name in ("a", "b"):
            held = [b"%s%d" % (name.encode(), number) for number in range(6)]
            batches = [[(None, value) for value in held[:3]], [(None, value) for value in held[3:]]]
            await step(broker.create_topic(TOPIC), (0, []))
            await step(broker.produce(TOPIC, batches[0]), (0, held[:3]))
            broker.broker._maintenance.checkpoint()
            await step(delete_records(broker, 2), (2, held[2:3]))
            await step(broker.produce(TOPIC, batches[1]), (2, held[2:]))
            await step(delete_records(broker, 6), (6, []))
            await step(delete_topic(broker), None)

    live(data_dir, files, scenario)
    assert len(cuts) > 40
    for number, (cut, outcomes) in enumerate(cuts):
        cut.crash(random.Random(seed * 1000 + number) if seed else None)

        async def check(broker: InProcess, outcomes: list[Any] = outcomes) -> None:
            assert content(broker) in outcomes

        live(data_dir, cut, check)
        cut.crash()
        live(data_dir, cut, check)


# Deleted records


def test_deleted_records_stay_deleted_without_any_append_or_checkpoint(data_dir: str) -> None:
    files = disk_with(data_dir)

    async def before(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        await broker.produce(TOPIC, values(*range(10)))
        broker.broker._maintenance.checkpoint()
        assert [response.low_watermark for response in await delete_records(broker, 7)] == [7]

    async def after(broker: InProcess) -> None:
        assert content(broker) == (7, [b"7", b"8", b"9"])

    survive(data_dir, files, before, after)


def test_many_partitions_are_emptied_by_one_write(data_dir: str) -> None:
    files = disk_with(data_dir)

    async def scenario(broker: InProcess) -> None:
        response = await broker.ask(CreateTopicsRequest([CreatableTopic(TOPIC, 30, 1)]), 7)
        assert response.topics[0].error_code == 0
        for partition in range(30):
            log = broker.broker.replicas.get(TOPIC, partition).log
            assert log.end_offset == 0
        await broker.produce(TOPIC, values(1, 2))
        syncs = files.syncs
        responses = await delete_records(broker, -1, *range(30), 0, 30)
        assert [response.low_watermark for response in responses] == [2] + [0] * 29 + [2, -1]
        assert responses[-1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert files.syncs - syncs == 2
        await delete_records(broker, 1)
        assert files.syncs - syncs == 2, "it starts later already"

    live(data_dir, files, scenario)


def test_a_full_disk_deletes_no_records(data_dir: str) -> None:
    files = disk_with(data_dir)

    async def scenario(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        await broker.produce(TOPIC, values(1, 2, 3))
        files.free_bytes = 0
        (response,) = await delete_records(broker, 2)
        assert (response.error_code, response.low_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert content(broker) == (0, [b"1", b"2", b"3"])
        files.free_bytes = None
        (response,) = await delete_records(broker, 2)
        assert (response.error_code, response.low_watermark) == (0, 2)
        assert content(broker) == (2, [b"3"])

    live(data_dir, files, scenario)


def test_records_are_on_disk_before_they_count_as_deleted(data_dir: str) -> None:
    """Otherwise a power cut would leave the log shorter than its start, with deleted records in it."""
    files = disk_with(data_dir)

    async def before(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        await broker.produce(TOPIC, values(1, 2))
        broker.broker.replicas.get(TOPIC, 0).log.sync()
        await broker.produce(TOPIC, values(3, 4))
        assert (await delete_records(broker, 4))[0].low_watermark == 4

    async def after(broker: InProcess) -> None:
        assert content(broker) == (4, [])
        assert (await broker.produce(TOPIC, values(5))).base_offset == 4

    live(data_dir, files, before, log_sync_commit="false")
    files.crash()
    live(data_dir, files, after, log_sync_commit="false")


def test_what_retention_deleted_stays_deleted(data_dir: str) -> None:
    files = disk_with(data_dir)

    async def before(broker: InProcess) -> None:
        await broker.create_topic(TOPIC, internal_segment_bytes="300", retention_bytes="0")
        for number in range(10):
            await broker.produce(TOPIC, [(None, b"%d" % number * 100)])
        broker.broker._maintenance.look_after_logs()
        assert content(broker) == (10, [])

    async def after(broker: InProcess) -> None:
        assert content(broker) == (10, [])

    live(data_dir, files, before)
    files.crash()
    live(data_dir, files, after)


# Gaps


def test_a_compacted_log_survives_another_policy_and_a_kill(data_dir: str, tmp_path: Path) -> None:
    killed = tmp_path / "killed"

    async def scenario() -> None:
        async with InProcess(data_dir, settings=NO_CLEANER) as broker:
            compaction = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
            await broker.create_topic(TOPIC, internal_segment_bytes="600", **compaction)
            for turn in range(60):
                key = b"key-%d" % turn if turn % 9 == 0 else b"same"
                await broker.produce(TOPIC, [(key, b"value-%d" % turn)])
            while await broker.broker._compactor.clean_one():
                pass
            await broker.broker._compactor._cleaner.stop()
            records = broker.records(TOPIC)
            assert len(records) < 30, "there are gaps"
            setting = AlterableConfig("cleanup.policy", 0, "delete")
            change = AlterConfigsResource(TOPIC_RESOURCE, TOPIC, [setting])
            await broker.ask(IncrementalAlterConfigsRequest([change]), 1)
            shutil.copytree(data_dir, killed)
        async with InProcess(str(killed), settings=NO_CLEANER) as broker:
            assert broker.records(TOPIC) == records
            assert broker.broker.replicas.get(TOPIC, 0).log.end_offset == 60

    asyncio.run(scenario())


# Damaged metadata, and logs without a topic


def flipped_bits(data: bytes) -> Iterator[bytes]:
    """One bit in each batch but the last."""
    position = 0
    while (end := position + read_header(data[position:]).size) < len(data):
        damaged = bytearray(data)
        damaged[(position + end) // 2] ^= 8
        yield bytes(damaged)
        position = end


def test_a_flipped_bit_in_the_metadata_log_stops_the_start_and_deletes_nothing(data_dir: str) -> None:
    files = disk_with(data_dir)

    async def before(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        await broker.produce(TOPIC, values(1, 2, 3))

    async def after(broker: InProcess) -> None:
        assert content(broker) == (0, [b"1", b"2", b"3"])

    live(data_dir, files, before)
    path = f"{data_dir}/{METADATA_LOG}"
    data = files.read(path)
    names = {entry.name for entry in files.list(data_dir)}
    tried = 0
    for damaged in flipped_bits(data):
        disk = files.twin()
        disk.create(path).write_at(0, damaged)
        with pytest.raises(DamagedData, match="is damaged at byte"):
            live(data_dir, disk, after)
        assert {entry.name for entry in disk.list(data_dir)} == names
        disk.create(path).write_at(0, data)
        live(data_dir, disk, after)
        tried += 1
    assert tried >= 3


def test_without_its_metadata_every_log_is_set_aside_and_kept(
    data_dir: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = disk_with(data_dir)

    async def before(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        await broker.produce(TOPIC, values(1, 2, 3))

    async def after(broker: InProcess) -> None:
        assert content(broker) is None
        await broker.create_topic(TOPIC)
        await broker.produce(TOPIC, values(4))
        assert content(broker) == (0, [b"4"])
        await remove_deleted(broker)

    live(data_dir, files, before)
    kept = files.read(f"{data_dir}/t-0/00000000000000000000.log")
    files.remove_tree(f"{data_dir}/__cluster_metadata-0")
    live(data_dir, files.twin(), after)
    disk = files.twin()
    live(data_dir, disk, after)
    (stray,) = [entry.name for entry in disk.list(data_dir) if entry.name.endswith("-stray")]
    assert disk.read(f"{data_dir}/{stray}/00000000000000000000.log") == kept
    assert stray in caplog.text


def test_a_deletion_that_a_crash_kept_from_the_logs(data_dir: str) -> None:
    """The metadata has the new topic, the directory is still the old one's: its records do not come back."""
    files = disk_with(data_dir)

    async def before(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        await broker.produce(TOPIC, values(1, 2, 3))
        broker.broker._maintenance.checkpoint()
        listeners, broker.broker.metadata._listeners = broker.broker.metadata._listeners, []
        await delete_topic(broker)
        await broker.create_topic(TOPIC)
        broker.broker.metadata._listeners = listeners

    async def after(broker: InProcess) -> None:
        assert content(broker) == (0, [])
        assert not [entry.name for entry in files.list(data_dir) if entry.name.endswith("-stray")]
        assert (await broker.produce(TOPIC, values(7))).base_offset == 0

    async def later(broker: InProcess) -> None:
        assert content(broker) == (0, [b"7"])

    live(data_dir, files, before)
    files = files.twin()
    live(data_dir, files, after)
    files.crash()
    live(data_dir, files, later)


def test_directories_of_others_are_left_alone(data_dir: str) -> None:
    files = disk_with(data_dir)
    for name in ("backup-2026", "old-delete"):
        files.make_directory(f"{data_dir}/{name}")
        files.create(f"{data_dir}/{name}/precious").write_at(0, b"x")

    async def scenario(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        await remove_deleted(broker)

    live(data_dir, files, scenario)
    files = files.twin()
    live(data_dir, files, remove_deleted)
    for name in ("backup-2026", "old-delete"):
        assert [entry.name for entry in files.list(f"{data_dir}/{name}")] == ["precious"]


async def remove_deleted(broker: InProcess) -> None:
    await broker.broker._maintenance._remove_deleted()


# Leader epochs


async def end_of_epoch(broker: InProcess, epoch: int, topic: str = TOPIC) -> tuple[int, int]:
    asked = OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(0, -1, epoch)])
    response = (await broker.ask(OffsetForLeaderEpochRequest(-1, [asked]), 4)).topics[0].partitions[0]
    assert response.error_code == 0
    return response.leader_epoch, response.end_offset


async def fetch_after(broker: InProcess, epoch: int, offset: int) -> Any:
    asked = FetchPartition(0, -1, offset, epoch, partition_max_bytes=1000)
    request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=TOPIC, partitions=[asked])])
    return (await broker.ask(request, 12)).responses[0].partitions[0]


def test_an_older_epoch_of_an_empty_partition_is_not_a_truncation(data_dir: str) -> None:
    files = disk_with(data_dir)
    epochs: list[int] = []

    async def look(broker: InProcess) -> None:
        if not epochs:
            await broker.create_topic(TOPIC)
        current = broker.broker.replicas.get(TOPIC, 0).leader_epoch
        epochs.append(current)
        for epoch in epochs:
            assert await end_of_epoch(broker, epoch) == (epoch, 0)
            fetched = await fetch_after(broker, epoch, 0)
            assert (fetched.error_code, fetched.diverging_epoch.end_offset) == (0, -1)
        assert await end_of_epoch(broker, current + 1) == (-1, -1)
        refused = await fetch_after(broker, current + 1, 0)
        assert refused.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    for _ in range(4):
        live(data_dir, files, look)
        files = files.twin()
    assert len(set(epochs)) == 4, "a new epoch after every kill"


def test_epochs_of_a_log_with_records(data_dir: str) -> None:
    files = disk_with(data_dir)
    ends: dict[int, int] = {}

    async def look(broker: InProcess) -> None:
        if not ends:
            await broker.create_topic(TOPIC)
        partition = broker.broker.replicas.get(TOPIC, 0)
        for epoch, end in ends.items():
            assert await end_of_epoch(broker, epoch) == (epoch, end)
        assert await end_of_epoch(broker, partition.leader_epoch) == (
            partition.leader_epoch,
            partition.log.end_offset,
        )
        await broker.produce(TOPIC, values(1, 2))
        ends[partition.leader_epoch] = partition.log.end_offset
        assert partition.log.leader_epochs.latest == partition.leader_epoch

    for _ in range(3):
        live(data_dir, files, look)
        files = files.twin()
    assert list(ends.values()) == [2, 4, 6]


def test_entering_an_epoch_writes_nothing(data_dir: str) -> None:
    """Idle partitions cost nothing, at start and at a clean stop."""
    files = disk_with(data_dir)

    async def scenario() -> None:
        async with InProcess(data_dir, files) as broker:
            await broker.ask(CreateTopicsRequest([CreatableTopic(TOPIC, 40, 1)]), 7)
            while len(broker.broker._store.logs) < 40:
                await asyncio.sleep(0)
        syncs = files.syncs
        async with InProcess(data_dir, files) as broker:
            assert all(partition.log.leader_epochs.latest >= 0 for partition in broker.broker.replicas)
            assert len(broker.broker.replicas) == 40
        assert files.syncs - syncs < 40

    asyncio.run(scenario())
