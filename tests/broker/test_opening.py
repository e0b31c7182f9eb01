"""Logs are created after their topic, one in each turn of the event loop, or when a request names one."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.broker.in_process import InProcess
from tests.broker.test_disk_faults import FaultyFiles

from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

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
    answer = await broker.ask(CreateTopicsRequest([CreatableTopic("t", COUNT, 1)]), 7)
    assert answer.topics[0].error_code == 0


async def end_offset_error(broker: InProcess, partition: int) -> int:
    wanted = ListOffsetsTopic("t", [ListOffsetsPartition(partition, timestamp=-1)])
    answer = await broker.ask(ListOffsetsRequest(-1, 0, [wanted]), 7)
    code: int = answer.topics[0].partitions[0].error_code
    return code


async def all_turns() -> None:
    """As many turns of the loop as there are partitions, and one for whoever was in it already."""
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


def test_a_partition_that_is_named_is_there(tmp_path: Path) -> None:
    async def scenario(broker: InProcess) -> None:
        await create(broker)
        assert await end_offset_error(broker, COUNT - 1) == 0
        assert directories(tmp_path) == {f"t-{COUNT - 1}"}
        named = broker.broker.replicas.get("t", COUNT - 1)
        await all_turns()
        assert broker.broker.replicas.get("t", COUNT - 1) is named

    run(tmp_path, scenario)


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
        assert await end_offset_error(broker, 0) != 0
        files.room_for_directories = 100
        await broker.ask(CreatePartitionsRequest([CreatePartitionsTopic("t", COUNT + 1, None)], 5000), 3)
        assert await end_offset_error(broker, 0) == 0
        opened = broker.broker.replicas.get("t", 0)
        broker.broker._partitions.retry_failed()
        await all_turns()
        assert broker.broker.replicas.get("t", 0) is opened

    run(tmp_path, scenario, files)
