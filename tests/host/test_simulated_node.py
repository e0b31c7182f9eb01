"""A whole node on a simulated host: its disk, its clock and its threads are the simulated ones."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from odradek.errors import ErrorCode
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.sync_group import SyncGroupRequest
from tests.lives.members import code_of, commit_request
from tests.simulation.connection import Connection
from tests.simulation.machine import Machine
from tests.simulation.world import World

HOUR_MS = 3_600_000
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}


def run(scenario: Callable[[World, Machine], Awaitable[None]]) -> Machine:
    world = World(1)
    machine = world.machine("node1", SETTINGS)

    async def start_and_play() -> None:
        await machine.start()
        await scenario(world, machine)
        await machine.stop()

    world.run(start_and_play())
    return machine


async def join_classic_group(client: Connection) -> tuple[str, int]:
    protocols = [JoinGroupRequestProtocol("range", b"")]
    member_id = ""
    for _ in range(2):  # the first time only an id is given
        request = JoinGroupRequest("g", 30_000, 30_000, member_id, None, "consumer", protocols)
        joined = await client.ask(request, 9)
        member_id = joined.member_id
    await client.ask(SyncGroupRequest("g", joined.generation_id, member_id, None, "consumer", "range"), 5)
    return member_id, joined.generation_id


async def join_consumer_group(client: Connection) -> tuple[str, int]:
    request = ConsumerGroupHeartbeatRequest(
        "g", "me", 0, rebalance_timeout_ms=30_000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    return "me", (await client.ask(request, 1)).member_epoch


@pytest.mark.parametrize("jump_ms", [24 * HOUR_MS, -24 * HOUR_MS])
@pytest.mark.parametrize("join", [join_classic_group, join_consumer_group])
def test_a_session_does_not_end_because_somebody_sets_the_clock(
    join: Callable[[Connection], Awaitable[tuple[str, int]]], jump_ms: int
) -> None:
    async def scenario(world: World, machine: Machine) -> None:
        client = await world.connect("client", machine)
        await client.ask(CreateTopicsRequest([CreatableTopic("t", 1, 1)]))
        await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        await asyncio.sleep(1)
        member_id, generation = await join(client)
        machine.jump(jump_ms)
        await asyncio.sleep(2)
        response = await client.ask(commit_request("g", member_id, generation, "t", 0, 6), 9)
        assert code_of(response) == ErrorCode.NONE

    run(scenario)


def test_the_free_space_that_clients_are_told_is_the_simulated_disks() -> None:
    async def scenario(world: World, machine: Machine) -> None:
        machine.fill_disk(5_000_000)
        client = await world.connect("client", machine)
        (described,) = (await client.ask(DescribeLogDirsRequest(topics=[]))).results
        assert described.usable_bytes == 5_000_000

    run(scenario)


def test_a_node_makes_its_data_directory_on_the_disk_it_is_given() -> None:
    async def scenario(world: World, machine: Machine) -> None:
        pass

    machine = run(scenario)
    assert "/data/meta.properties" in machine.files.contents()
    machine.files.crash()
    assert "/data/meta.properties" in machine.files.contents()
