"""The toolkit itself: power cuts, faults of disk and network, and what clients see of them."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from odradek.errors import ErrorCode
from odradek.records.record import Record, build_batch
from odradek.storage.disk.room import LONGEST_LOOK_SECONDS
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.simulation.connection import Disconnected, Violation
from tests.simulation.machine import CannotStart, Machine
from tests.simulation.world import World

CREATE = CreateTopicsRequest([CreatableTopic("t", 1, 1)])
BATCH = bytes(build_batch([Record(0, 0, b"key", b"value")]))


def produce(acks: int) -> ProduceRequest:
    return ProduceRequest(
        None, acks, 1_000, [TopicProduceData(name="t", partition_data=[PartitionProduceData(0, BATCH)])]
    )


def run(scenario: Callable[[World, Machine], Awaitable[None]], seed: int = 1) -> None:
    world = World(seed)
    machine = world.machine("node1", {})

    async def start_and_play() -> None:
        await machine.start()
        await scenario(world, machine)
        await machine.stop()

    world.run(start_and_play())


async def topics(world: World, machine: Machine) -> list[str]:
    response = await (await world.connect("bob", machine)).ask(MetadataRequest(topics=None), 12)
    return [topic.name for topic in response.topics]


def test_a_client_finds_what_it_made_after_a_power_cut() -> None:
    async def scenario(world: World, machine: Machine) -> None:
        alice = await world.connect("alice", machine)
        await alice.ask(CREATE)
        machine.cut_power(world.new_rng())
        with pytest.raises(Disconnected):
            await world.connect("bob", machine)
        await machine.start()
        with pytest.raises(Disconnected):
            await alice.ask(CREATE)  # on a connection that the broker knows nothing of
        assert await topics(world, machine) == ["t"]

    run(scenario)


def test_power_is_cut_in_the_middle_of_a_change_to_the_disk() -> None:
    """Whichever it is: afterwards there is the whole topic, or none."""
    for count in range(1, 12):

        async def scenario(world: World, machine: Machine, count: int = count) -> None:
            alice = await world.connect("alice", machine)
            machine.cut_power_at(changes=count, loss=world.new_rng())
            response = alice.send(CREATE)
            await asyncio.sleep(1)
            if machine.is_on:
                machine.cut_power(world.new_rng())
            assert response.done() <= (machine.crashes == 1)
            await machine.start()
            assert await topics(world, machine) in ([], ["t"])

        run(scenario, seed=count)


def test_a_broker_whose_power_is_cut_while_it_starts_can_be_started_again() -> None:
    async def scenario(world: World, machine: Machine) -> None:
        machine.cut_power()
        machine.cut_power_at(syncs=1)
        with pytest.raises(CannotStart):
            await machine.start()
        await machine.start()

    run(scenario)


def test_what_was_acknowledged_by_the_leader_alone_is_lost_with_the_power() -> None:
    async def scenario(world: World, machine: Machine) -> None:
        alice = await world.connect("alice", machine)
        await alice.ask(CREATE)
        await alice.ask(produce(acks=-1), 9)
        machine.cut_power_at(syncs=1)
        alice.send_only(produce(acks=0), 9)
        await machine.off()
        assert machine.lossy_crashes == 1
        await machine.start()

    run(scenario)


def test_a_full_disk_is_an_error_that_passes() -> None:
    async def scenario(world: World, machine: Machine) -> None:
        alice = await world.connect("alice", machine)
        await alice.ask(CREATE)
        codes = []
        for prepare in (machine.fill_disk, machine.heal):
            prepare()
            await asyncio.sleep(LONGEST_LOOK_SECONDS)  # of virtual time: the broker has looked at its disk
            response = await alice.ask(produce(acks=-1), 9)
            codes.append(response.responses[0].partition_responses[0].error_code)
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]

    run(scenario)


def test_a_node_that_does_not_answer_is_a_violation_unless_it_cannot() -> None:
    async def scenario(world: World, machine: Machine) -> None:
        alice = await world.connect("alice", machine)
        world.cut("alice", "node1", to_node=False)
        with pytest.raises(Disconnected):
            await alice.ask(CREATE, seconds=1)
        world.heal_all()
        alice = await world.connect("alice", machine)
        await alice.ask(CREATE, seconds=0.0001)

    with pytest.raises(Violation, match="no response"):
        run(scenario)
