"""Logs are created after their topic, one in each turn of the event loop, or by the first append to one."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.records.record import Record, build_batch
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.in_process import InProcess
from tests.broker.test_disk_faults import FaultyFiles

COUNT = 20
TOPIC_RESOURCE = 2


def run(
    data_dir: Path, scenario: Callable[[InProcess], Awaitable[None]], files: FaultyFiles | None = None
) -> None:
    unhandled: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        async with InProcess(str(data_dir), files) as broker:
            await scenario(broker)

    asyncio.run(main())
    assert not unhandled


async def create(broker: InProcess) -> None:
    response = await broker.ask(CreateTopicsRequest([CreatableTopic("t", COUNT, 1)]), 7)
    assert response.topics[0].error_code == 0


async def list_offset(broker: InProcess, partition: int, timestamp: int) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsTopic("t", [ListOffsetsPartition(partition, timestamp=timestamp)])
    response = await broker.ask(ListOffsetsRequest(-1, 0, [wanted]), 7)
    found: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
    return found


async def end_offset_error(broker: InProcess, partition: int) -> int:
    return (await list_offset(broker, partition, -1)).error_code


async def append_error(broker: InProcess, partition: int) -> int:
    batch = bytes(build_batch([Record(0, 0, None, b"value")]))
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(partition, batch)])
    response = await broker.ask(ProduceRequest(None, 1, 30_000, [data]), 9)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


async def all_turns() -> None:
    """It takes as many turns of the loop as there are partitions, and one for whoever was in it already."""
    for _ in range(COUNT + 1):
        await asyncio.sleep(0)


def directories(data_dir: Path) -> set[str]:
    return {path.name for path in data_dir.glob("t-*")}


def test_a_topic_does_not_wait_for_its_files(tmp_path: Path) -> None:
    async def scenario(broker: InProcess) -> None:
        await create(broker)
        assert directories(tmp_path) == set()
        await asyncio.sleep(0)
        assert len(directories(tmp_path)) <= 2
        await all_turns()
        assert len(directories(tmp_path)) == len(broker.broker.replicas) == COUNT

    run(tmp_path, scenario)


def test_asking_for_a_partition_makes_no_files(tmp_path: Path) -> None:
    """It is empty, and everything that can be asked about it is answered."""

    async def scenario(broker: InProcess) -> None:
        await create(broker)
        epoch = broker.broker.metadata.image.topics["t"].partitions[COUNT - 1].leader_epoch
        for timestamp, expected in ((-1, (0, epoch)), (-2, (0, epoch)), (-3, (-1, -1)), (5, (-1, -1))):
            found = await list_offset(broker, COUNT - 1, timestamp)
            assert (found.error_code, (found.offset, found.leader_epoch)) == (0, expected)
        asked = OffsetForLeaderTopic("t", [OffsetForLeaderPartition(COUNT - 1, -1, epoch)])
        ended = (await broker.ask(OffsetForLeaderEpochRequest(-2, [asked]), 4)).topics[0].partitions[0]
        assert (ended.error_code, ended.leader_epoch, ended.end_offset) == (0, epoch, 0)
        producers = await broker.ask(DescribeProducersRequest([TopicRequest("t", [COUNT - 1])]), 0)
        assert producers.topics[0].partitions[0].error_code == 0
        deleted = DeleteRecordsTopic("t", [DeleteRecordsPartition(COUNT - 1, -1)])
        result = (await broker.ask(DeleteRecordsRequest([deleted], 1000), 2)).topics[0].partitions[0]
        assert (result.error_code, result.low_watermark) == (0, 0)
        sizes = await broker.ask(DescribeLogDirsRequest([DescribableLogDirTopic("t", [COUNT - 1])]), 4)
        assert sizes.results[0].topics[0].partitions[0].partition_size == 0
        for offset, code in ((0, 0), (1, ErrorCode.OFFSET_OUT_OF_RANGE)):
            wanted = FetchTopic(topic="t", partitions=[FetchPartition(COUNT - 1, fetch_offset=offset)])
            request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[wanted])
            assert (await broker.ask(request, 12)).responses[0].partitions[0].error_code == code
        assert directories(tmp_path) == set()
        named = broker.broker.replicas.get("t", COUNT - 1)
        await all_turns()
        assert directories(tmp_path) == {f"t-{index}" for index in range(COUNT)}
        assert broker.broker.replicas.get("t", COUNT - 1) is named
        assert named.log is broker.broker._store.get(TopicPartition("t", COUNT - 1))
        assert named.leader is not None and named.leader.log is named.log
        assert named.log.leader_epochs.latest == epoch

    run(tmp_path, scenario)


def test_the_first_append_makes_the_log(tmp_path: Path) -> None:
    async def scenario(broker: InProcess) -> None:
        await create(broker)
        assert await end_offset_error(broker, COUNT - 1) == 0
        assert await append_error(broker, COUNT - 1) == 0
        assert directories(tmp_path) == {f"t-{COUNT - 1}"}
        await all_turns()
        assert (await list_offset(broker, COUNT - 1, -1)).offset == 1

    run(tmp_path, scenario)


def test_a_log_that_cannot_be_made_refuses_the_append_and_nothing_else(tmp_path: Path) -> None:
    files = FaultyFiles()

    async def scenario(broker: InProcess) -> None:
        await create(broker)
        files.room_for_directories = 0
        assert await append_error(broker, 0) == ErrorCode.KAFKA_STORAGE_ERROR
        assert await end_offset_error(broker, 0) == 0
        files.room_for_directories = 100
        broker.broker._partitions.retry_failed()
        await all_turns()
        assert await append_error(broker, 0) == 0

    run(tmp_path, scenario, files)


def test_what_is_not_open_when_the_broker_stops_is_at_the_next_start(tmp_path: Path) -> None:
    async def look(broker: InProcess) -> None:
        assert len(broker.broker.replicas) < COUNT, "a start does not wait for files either"
        assert await end_offset_error(broker, COUNT - 1) == 0
        await all_turns()
        assert len(broker.broker.replicas) == COUNT

    async def stopped() -> None:
        async with InProcess(str(tmp_path)) as broker:
            await create(broker)
        await all_turns()  # nothing is created in a directory that was let go of
        assert len(directories(tmp_path)) < COUNT

    asyncio.run(stopped())
    run(tmp_path, look)


def test_a_topic_that_is_deleted_at_once_leaves_nothing(tmp_path: Path) -> None:
    async def scenario(broker: InProcess) -> None:
        await create(broker)
        await broker.ask(DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=5000), 6)
        await all_turns()
        assert directories(tmp_path) == set()
        assert len(broker.broker.replicas) == 0

    run(tmp_path, scenario)


def test_settings_reach_logs_that_are_opened_later(tmp_path: Path) -> None:
    async def scenario(broker: InProcess) -> None:
        await create(broker)
        change = AlterConfigsResource(TOPIC_RESOURCE, "t", [AlterableConfig("retention.ms", 0, "12345")])
        await broker.ask(IncrementalAlterConfigsRequest([change]), 1)
        await all_turns()
        configs = {id(partition.log.config) for partition in broker.broker.replicas}
        assert len(configs) == 1, "one object of settings for all partitions"
        assert broker.broker.replicas.get("t", 3).log.config.retention_ms == 12345

    run(tmp_path, scenario)


def test_a_log_that_failed_is_not_opened_twice(tmp_path: Path) -> None:
    """It failed, was planned anew when its topic grew, and was opened: trying again must leave it alone."""
    files = FaultyFiles()

    async def scenario(broker: InProcess) -> None:
        await create(broker)
        files.room_for_directories = 0
        assert await append_error(broker, 0) != 0
        files.room_for_directories = 100
        await broker.ask(CreatePartitionsRequest([CreatePartitionsTopic("t", COUNT + 1, None)], 5000), 3)
        assert await append_error(broker, 0) == 0
        opened = broker.broker.replicas.get("t", 0)
        broker.broker._partitions.retry_failed()
        await all_turns()
        assert broker.broker.replicas.get("t", 0) is opened

    run(tmp_path, scenario, files)
