"""Bugs that random runs have found, as scripts that show nothing else."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from odradek.errors import ErrorCode
from odradek.records.record import Record, build_batch
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.lives.members import code_of, commit_request, committed_offsets_request
from tests.simulation.connection import Connection
from tests.simulation.machine import Machine
from tests.simulation.plan import SETTINGS
from tests.simulation.world import World


def run(scenario: Callable[[World, Machine], Awaitable[None]], seed: int = 1) -> None:
    world = World(seed)
    machine = world.machine("node1", SETTINGS)

    async def start_and_play() -> None:
        await machine.start()
        await scenario(world, machine)

    world.run(start_and_play())


async def create(connection: Connection, name: str, **configs: str) -> UUID:
    settings = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    (created,) = (
        await connection.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1, configs=settings)]))
    ).topics
    assert created.error_code == ErrorCode.NONE, created
    topic_id: UUID = created.topic_id
    return topic_id


async def produce(connection: Connection, name: str, count: int) -> None:
    batch = bytes(build_batch([Record(at, 0, b"key", b"value %d" % at) for at in range(count)]))
    data = [TopicProduceData(name=name, partition_data=[PartitionProduceData(0, batch)])]
    (result,) = (
        (await connection.ask(ProduceRequest(None, -1, 1_000, data), 9)).responses[0].partition_responses
    )
    assert result.error_code == ErrorCode.NONE, result


async def commit(connection: Connection, topic: str, offset: int) -> None:
    """Commit as somebody who is no member of the group."""
    for _ in range(100):
        await connection.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["group"]), 4)
        code = code_of(await connection.ask(commit_request("group", "", -1, topic, 0, offset), 9))
        if code == ErrorCode.NONE:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"no commit: {ErrorCode(code).name}")


async def committed(connection: Connection, topic: str) -> int:
    for _ in range(100):
        (group,) = (await connection.ask(committed_offsets_request("group"), 9)).groups
        if group.error_code == ErrorCode.NONE:
            found: dict[Any, int] = {each.name: each.partitions[0].committed_offset for each in group.topics}
            return found.get(topic, -1)
        await asyncio.sleep(0.01)
    raise AssertionError(f"no offsets: {ErrorCode(group.error_code).name}")


def test_an_offset_that_was_committed_by_name_knows_its_topics_id() -> None:
    """So that it is not taken for one of the next topic of that name, whatever a crash has lost."""

    async def scenario(world: World, machine: Machine) -> None:
        alice = await world.connect("alice", machine)
        topic_id = await create(alice, "t")
        await commit(alice, "t", 75)
        logs = [data for path, data in machine.files.contents().items() if "__consumer_offsets" in path]
        assert any(topic_id.bytes in data for data in logs)

    run(scenario)


def test_nobody_is_shown_the_offset_of_a_deleted_topic_though_its_tombstone_finds_no_space() -> None:
    async def scenario(world: World, machine: Machine) -> None:
        alice = await world.connect("alice", machine)
        await create(alice, "t")
        await commit(alice, "t", 75)
        deleting = alice.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1_000))
        machine.fill_disk(150)  # for the metadata, and nothing else
        (deleted,) = (await alice.until(deleting)).responses
        assert deleted.error_code == ErrorCode.NONE
        machine.fill_disk(0)
        assert await committed(alice, "t") == -1

    run(scenario)


def test_a_compacted_topic_is_deleted_without_descriptors() -> None:
    """And without a traceback: the cleaner's checkpoint need not be written for that."""
    for after in range(6):

        async def scenario(world: World, machine: Machine, after: int = after) -> None:
            alice = await world.connect("alice", machine)
            await create(
                alice,
                "t",
                cleanup_policy="compact",
                internal_segment_bytes="600",
                min_cleanable_dirty_ratio="0.01",
            )
            for _ in range(6):
                await produce(alice, "t", 10)
            await asyncio.sleep(0.5)
            assert b"t 0 " in machine.files.contents()["/data/cleaner-offset-checkpoint"]
            machine.take_descriptors(after)
            await alice.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1_000))
            await asyncio.sleep(0.3)
            machine.heal()
            await asyncio.sleep(0.3)
            await machine.stop()

        run(scenario)


def test_a_broker_without_descriptors_can_be_stopped() -> None:
    async def scenario(world: World, machine: Machine) -> None:
        alice = await world.connect("alice", machine)
        await create(alice, "t")
        machine.take_descriptors()
        await machine.stop()
        machine.heal()
        await machine.start()

    run(scenario)
