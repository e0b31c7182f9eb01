"""Bugs of our own that were found from outside, each as a short script on a whole node.

The numbers are those of the design's list of scenarios. Each script fails when its bug is put back:
`tests/simulation/planted.py` holds the bugs, and `tests/planting` puts them back, one by one.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from odradek.errors import ErrorCode
from odradek.serving.turns import TURN_SECONDS
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.protocol.raw import fetch_request
from tests.simulation.connection import Connection
from tests.simulation.machine import CannotStart, Machine
from tests.simulation.requests import (
    FETCH_BY_NAME,
    configure,
    create,
    delete,
    delete_records,
    earliest,
    fetch,
    produce,
    read,
    try_to_produce,
    values,
)
from tests.simulation.world import World

METADATA_LOG = "/data/__cluster_metadata-0/00000000000000000000.log"
FIRST_SEGMENT = "/data/t-0/00000000000000000000.log"
MINUTE = 60.0

Script = Callable[[World, Machine], Awaitable[None]]


def scenario(**settings: str) -> Callable[[Script], Callable[[], None]]:
    """A test that plays this script on a machine with these settings, which is on when it begins."""
    settings = {name.replace("_", "."): value for name, value in settings.items()}

    def decorate(script: Script) -> Callable[[], None]:
        def test() -> None:
            world = World(seed=1)
            machine = world.machine("node1", {"auto.create.topics.enable": "false", **settings})

            async def play() -> None:
                await machine.start()
                await script(world, machine)
                await machine.stop()

            world.run(play())

        test.__name__, test.__doc__ = script.__name__, script.__doc__
        return test

    return decorate


async def restart(world: World, machine: Machine) -> Connection:
    """Cut the power: all that was not synced is lost. Then start again, and connect."""
    machine.cut_power()
    await machine.start()
    return await world.connect("alice", machine)


def names(machine: Machine, *parts: str) -> list[str]:
    """The files on the disk whose path holds one of these."""
    return sorted(path for path in machine.files.contents() if any(part in path for part in parts))


@scenario()
async def test_16_a_topic_made_again_keeps_its_records_though_checkpoints_knew_the_old_one(
    world: World, machine: Machine
) -> None:
    """The old topic's log start was in a checkpoint under the topic's name; the new log was cut by it."""
    alice = await world.connect("alice", machine)
    await create(alice, "t")
    await produce(alice, "t", *[b"old"] * 8)
    assert await delete_records(alice, "t", 8) == 8
    await asyncio.sleep(2 * MINUTE)  # every checkpoint is written
    await delete(alice, "t")
    await create(alice, "t")
    await produce(alice, "t", *[b"new"] * 10)
    alice = await restart(world, machine)
    assert await values(alice, "t") == [b"new"] * 10
    assert await earliest(alice, "t") == 0


@scenario(log_cleaner_backoff_ms="50")
async def test_17_gaps_of_compaction_are_no_damage_after_the_policy_became_delete(
    world: World, machine: Machine
) -> None:
    """Recovery believed gaps only in topics that are compacted, and cut the log at the first one."""
    alice = await world.connect("alice", machine)
    compacted = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
    await create(alice, "t", internal_segment_bytes="600", **compacted)
    for number in range(60):
        key = b"key-%d" % number if number % 9 == 0 else b"same"
        await produce(alice, "t", b"value-%d" % number, key=key)
    await asyncio.sleep(1)
    before = await read(alice, "t")
    assert len(before) < 30, "there are gaps"
    await configure(alice, "t", "cleanup.policy", "delete")
    alice = await restart(world, machine)
    assert await read(alice, "t") == before


@scenario()
async def test_18_a_damaged_metadata_log_stops_the_start_and_costs_no_log(
    world: World, machine: Machine
) -> None:
    """A flipped bit was taken for the end of the metadata log: no topics, so every log was a stray, and deleted."""
    alice = await world.connect("alice", machine)
    await create(alice, "t")
    await produce(alice, "t", b"1", b"2", b"3")
    await create(alice, "behind-the-damage")
    machine.cut_power()
    intact = machine.files.read(METADATA_LOG)
    damaged = bytearray(intact)
    damaged[100] ^= 8
    machine.files.create(METADATA_LOG).write_at(0, bytes(damaged))
    before = names(machine, "/t-0/")
    with pytest.raises(CannotStart, match="is damaged at byte"):
        await machine.start()
    assert names(machine, "/t-0/") == before
    machine.files.create(METADATA_LOG).write_at(0, intact)
    await machine.start()
    alice = await world.connect("alice", machine)
    assert await values(alice, "t") == [b"1", b"2", b"3"]


@scenario()
async def test_19_a_fetch_that_waits_for_topics_deleted_together_is_answered_once(
    world: World, machine: Machine
) -> None:
    """It was answered for each of them; the second response raised in the middle of the deletion, which was never
    finished, and the topic made again showed the old records."""
    alice, bob = await world.connect("alice", machine), await world.connect("bob", machine)
    topics = ["a", "b", "c"]
    for name in topics:
        await create(alice, name)
        await produce(alice, name, b"old")
    parked = bob.send(fetch_request(topics, 1, min_bytes=1, max_wait_ms=30_000), FETCH_BY_NAME)
    await asyncio.sleep(0.1)
    assert not parked.done()
    await delete(alice, *topics)
    response = await bob.until(parked)
    assert any(topic.partitions[0].error_code for topic in response.responses)
    await bob.ask(ApiVersionsRequest())  # nothing else came in between
    assert names(machine, "/a-0/", "/b-0/", "/c-0/") == []
    for name in topics:
        await create(alice, name)
        assert await values(alice, name) == []
        await produce(alice, name, b"new")
    alice = await restart(world, machine)
    assert [await values(alice, name) for name in topics] == [[b"new"]] * 3


@scenario()
async def test_20_deleted_records_stay_deleted_after_a_crash(world: World, machine: Machine) -> None:
    """The new log start was written with the next checkpoint, and there was none without an append."""
    alice = await world.connect("alice", machine)
    await create(alice, "t")
    await produce(alice, "t", *[b"%d" % number for number in range(10)])
    await asyncio.sleep(2 * MINUTE)  # all that was appended is in the checkpoints
    assert await delete_records(alice, "t", 7) == 7
    alice = await restart(world, machine)
    assert await earliest(alice, "t") == 7
    assert (await fetch(alice, "t", 7)).log_start_offset == 7


@scenario(log_cleaner_backoff_ms="50")
async def test_21_a_segment_compacted_again_within_the_delay_of_its_removal(
    world: World, machine: Machine
) -> None:
    """It was renamed over its own `.deleted`: the files under the old name were never closed nor removed, and the
    removal that found nothing kept all others from being done."""
    alice = await world.connect("alice", machine)
    compacted = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
    await create(alice, "t", internal_segment_bytes="600", file_delete_delay_ms="60000", **compacted)
    newest = {}
    first_segments = set()
    for turn in range(4):
        for number in range(20):
            key = b"key-%d" % (
                number % 6 if turn == 0 else turn
            )  # each turn outdates one of the first records
            newest[key] = b"%d-%d" % (turn, number)
            await produce(alice, "t", newest[key], key=key)
        await asyncio.sleep(1)
        assert f"{FIRST_SEGMENT}.deleted" in machine.files.contents()
        first_segments.add(machine.files.read(FIRST_SEGMENT))
    assert len(first_segments) == 4, "it was compacted again and again"
    await create(alice, "other", file_delete_delay_ms="60000")
    await delete(alice, "other")
    await asyncio.sleep(3 * MINUTE)
    assert names(machine, ".deleted", "-delete") == []
    assert {record.key: record.value for record in await read(alice, "t")} == newest


@scenario()
async def test_22_a_moment_without_descriptors_is_not_a_failed_disk(world: World, machine: Machine) -> None:
    """The log that could not open a file took no more records until somebody restarted the broker."""
    alice = await world.connect("alice", machine)
    await create(alice, "t")
    await produce(alice, "t", b"before")
    machine.take_descriptors()
    refused = {await try_to_produce(alice, "t", b"meanwhile") for _ in range(3)}
    assert refused <= {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT}
    machine.free_descriptors()
    await asyncio.sleep(1)
    await produce(alice, "t", b"after")
    alice = await restart(world, machine)
    found = await values(alice, "t")
    assert (found[0], found[-1]) == (b"before", b"after")


@scenario(offsets_topic_num_partitions="2")
async def test_23_groups_are_available_once_there_is_room_for_their_topic(
    world: World, machine: Machine
) -> None:
    """The attempt to create `__consumer_offsets` was made once; every client got the outcome of it for ever."""
    alice = await world.connect("alice", machine)
    machine.fill_disk()
    response = await alice.ask(FindCoordinatorRequest(key="group"), 3)
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    machine.clear_disk()
    for _ in range(50):
        response = await alice.ask(FindCoordinatorRequest(key="group"), 3)
        if response.error_code == ErrorCode.NONE:
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"still {ErrorCode(response.error_code).name}")


@scenario()
async def test_24_a_huge_request_leaves_turns_to_the_others(world: World, machine: Machine) -> None:
    """A legal request for a hundred thousand names kept the event loop for 11 s. Here every look at the clock takes a
    tenth of a turn's share, so a turn is a number of steps, and turns are counted."""
    huge = MetadataRequest(topics=[MetadataRequestTopic(name=f"no-{number}") for number in range(20_000)])
    alice, bob = await world.connect("alice", machine), await world.connect("bob", machine)
    assert machine.node is not None
    turns = machine.node.services.node.turns

    def look() -> float:
        world.loop.spend(TURN_SECONDS / 10)
        return world.loop.time()

    turns.clock = look
    response = alice.send(huge, 12)
    responses = 0
    while not response.done():
        await bob.ask(ApiVersionsRequest())
        responses += not response.done()
    assert len(response.result().topics) == 20_000
    assert responses >= 50, "others were answered meanwhile"


@scenario()
async def test_25_an_epoch_without_records_is_not_a_truncation(world: World, machine: Machine) -> None:
    """A leader entered its epoch with the first append. Asked for the epoch of an empty log it said -1, and a consumer
    that had fetched in that epoch took it for a truncation."""
    alice = await world.connect("alice", machine)
    await create(alice, "t")
    epochs = []
    for _ in range(3):
        epochs.append(await leader_epoch(alice))
        assert [await end_of_epoch(alice, epoch) for epoch in epochs] == [(epoch, 0) for epoch in epochs]
        for epoch in epochs:
            assert await divergence(alice, epoch) == (-1, -1)
        alice = await restart(world, machine)
    assert len(set(epochs)) == 3, "a new epoch after every crash"


async def leader_epoch(client: Connection) -> int:
    response = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
    epoch: int = response.topics[0].partitions[0].leader_epoch
    return epoch


async def end_of_epoch(client: Connection, epoch: int) -> tuple[int, int]:
    asked = OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, epoch)])
    response = await client.ask(OffsetForLeaderEpochRequest(-1, [asked]), 4)
    (partition,) = response.topics[0].partitions
    assert partition.error_code == ErrorCode.NONE
    return partition.leader_epoch, partition.end_offset


async def divergence(client: Connection, epoch: int) -> tuple[int, int]:
    """Return what a consumer hears that fetched an empty log in this epoch before."""
    asked = FetchPartition(0, -1, 0, epoch, partition_max_bytes=1000)
    request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic="t", partitions=[asked])])
    (partition,) = (await client.ask(request, FETCH_BY_NAME)).responses[0].partitions
    assert partition.error_code == ErrorCode.NONE
    return partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset
