"""A record acknowledged with acks=1 is there for who asks next, though it is not on disk yet."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.metadata.records import PartitionChangeRecord
from odradek.replication.settings import ReplicaSettings
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.broker.in_process import InProcess
from tests.broker.test_roles import TOPIC, fetch_request, hold_syncs, run, some_turns

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


async def list_offsets(broker: InProcess, timestamp: int, version: int = 7, **more: int) -> Any:
    wanted = ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, timestamp=timestamp)])
    response = await broker.ask(ListOffsetsRequest(-1, more.pop("isolation", 0), [wanted], **more), version)
    return response.topics[0].partitions[0]


async def delete_records(broker: InProcess, offset: int, timeout_ms: int = 30_000) -> Any:
    wanted = DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, offset)])
    return (await broker.ask(DeleteRecordsRequest([wanted], timeout_ms), 2)).topics[0].partitions[0]


async def write(broker: InProcess) -> None:
    response = await broker.produce(TOPIC, [(None, b"x"), (None, b"y")], acks=1)
    assert (response.error_code, response.base_offset) == (0, 0)


@pytest.mark.parametrize(
    ("timestamp", "isolation", "offset"), [(LATEST, 0, 2), (LATEST, 1, 2), (MAX_TIMESTAMP, 0, 0), (0, 0, 0)]
)
def test_list_offsets_waits_for_the_sync_under_way(
    tmp_path: Path, timestamp: int, isolation: int, offset: int
) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        release = hold_syncs(broker)
        await write(broker)
        asking = asyncio.create_task(list_offsets(broker, timestamp, isolation=isolation))
        await some_turns()
        assert not asking.done()
        release()
        found = await asking
        assert (found.error_code, found.offset) == (0, offset)

    run(tmp_path, scenario)


@pytest.mark.parametrize(("offset", "low_watermark"), [(-1, 2), (2, 2), (1, 1)])
def test_delete_records_waits_for_the_sync_under_way(tmp_path: Path, offset: int, low_watermark: int) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        release = hold_syncs(broker)
        await write(broker)
        asking = asyncio.create_task(delete_records(broker, offset))
        await some_turns()
        assert not asking.done()
        release()
        deleted = await asking
        assert (deleted.error_code, deleted.low_watermark) == (0, low_watermark)

    run(tmp_path, scenario)


def test_who_needs_no_more_than_is_committed_does_not_wait(tmp_path: Path) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        await broker.produce(TOPIC, [(None, b"committed")])
        hold_syncs(broker)
        await broker.produce(TOPIC, [(None, b"x")], acks=1)
        assert (await list_offsets(broker, EARLIEST)).offset == 0
        assert (await delete_records(broker, 1)).low_watermark == 1

    run(tmp_path, scenario)


def test_an_offset_beyond_the_log_is_refused_after_the_sync(tmp_path: Path) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        await write(broker)
        assert (await delete_records(broker, 3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    run(tmp_path, scenario)


def test_a_sync_that_fails_is_said(tmp_path: Path) -> None:
    files = SimulatedFiles()
    files.make_directory(str(tmp_path))

    async def scenario() -> None:
        async with InProcess(str(tmp_path), files) as broker:
            await broker.create_topic(TOPIC)
            release = hold_syncs(broker)
            await write(broker)
            asking = asyncio.gather(list_offsets(broker, LATEST), delete_records(broker, -1))
            await some_turns()
            files.fail_syncs = 1
            release()
            codes = [found.error_code for found in await asking]
            assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
            assert (await list_offsets(broker, LATEST)).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    asyncio.run(scenario())


def test_a_sync_that_takes_too_long_is_not_waited_for(tmp_path: Path) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        release = hold_syncs(broker)
        await write(broker)
        listed = await list_offsets(broker, LATEST, 10, timeout_ms=1)
        deleted = await delete_records(broker, -1, timeout_ms=1)
        assert listed.error_code == deleted.error_code == ErrorCode.REQUEST_TIMED_OUT
        release()
        assert (await list_offsets(broker, LATEST)).offset == 2

    run(tmp_path, scenario)


def test_a_topic_deleted_meanwhile_is_unknown(tmp_path: Path) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        hold_syncs(broker)
        await write(broker)
        asking = asyncio.create_task(list_offsets(broker, LATEST))
        await some_turns()
        broker.broker.replicas.get(TOPIC, 0).close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert (await asking).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, scenario)


def test_with_more_replicas_nobody_waits(tmp_path: Path) -> None:
    """Records acknowledged with acks=1 are not committed before the others have them, as in Kafka."""

    async def scenario(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        metadata = broker.broker.metadata
        topic_id = metadata.image.topics[TOPIC].id
        metadata._commit([PartitionChangeRecord(0, topic_id, replicas=[1, 2], isr=[1, 2])])
        hold_syncs(broker)
        await write(broker)
        assert (await list_offsets(broker, LATEST)).offset == 0
        assert (await delete_records(broker, 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await list_offsets(broker, 0)).offset == -1

    run(tmp_path, scenario)


def test_a_new_leader_says_nothing_of_what_it_does_not_know_yet(tmp_path: Path) -> None:
    """KIP-207: the high watermark that it knows may be lower than what the leader before it has shown."""

    async def scenario(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        hold_syncs(broker)
        await write(broker)
        metadata = broker.broker.metadata
        topic_id = metadata.image.topics[TOPIC].id
        metadata._commit([PartitionChangeRecord(0, topic_id, leader=1, replicas=[1, 2], isr=[1, 2])])
        for timestamp in (LATEST, MAX_TIMESTAMP, 0):
            code = (await list_offsets(broker, timestamp)).error_code
            assert code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await list_offsets(broker, LATEST, version=4)).error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert (await list_offsets(broker, EARLIEST)).error_code == 0
        leader = broker.broker.replicas.leader(TOPIC, 0)
        leader.log.sync()
        leader.replica_fetched(2, broker_epoch=1, offset=2, now_ms=0)
        assert (await list_offsets(broker, LATEST)).offset == 2

    run(tmp_path, scenario)


def test_where_nothing_is_synced_nobody_waits(tmp_path: Path) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        broker.broker.replicas.get(TOPIC, 0).configure(ReplicaSettings(sync_commit=False))
        await write(broker)
        assert (await list_offsets(broker, LATEST)).offset == 2

    run(tmp_path, scenario)


def test_a_fetch_waits_for_it_as_for_any_data(tmp_path: Path) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        release = hold_syncs(broker)
        await write(broker)
        asking = asyncio.create_task(broker.ask(fetch_request(max_wait_ms=60_000), 12))
        await some_turns()
        assert not asking.done()
        release()
        assert (await asking).responses[0].partitions[0].high_watermark == 2

    run(tmp_path, scenario)
