"""Quotas on a whole node, on virtual time: what clients produce and consume, who is throttled, and who is not."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.records.record import Record, build_batch
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityDataInRequest,
    EntryDataInRequest,
    OpData,
)
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.simulation.connection import Connection
from tests.simulation.machine import Machine
from tests.simulation.world import World

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "metadata.log.max.record.bytes.between.snapshots": "1",  # as soon as it looks
}
LIMIT = 100_000  # bytes per second
BATCH = bytes(build_batch([Record(0, 1_700_000_000_000, None, b"x" * 8_000)]))
PATIENCE = 60.0  # seconds
PERIOD = 33  # seconds: three times all windows
ENTITIES = {
    "--user": ("user", "ANONYMOUS"),
    "--user-default": ("user", None),
    "--client-default": ("client-id", None),
}


def run(scenario: Callable[[World, Machine], Awaitable[None]]) -> None:
    world = World(1)
    machine = world.machine("node1", SETTINGS)

    async def start_and_play() -> None:
        await machine.start()
        await scenario(world, machine)
        await machine.stop()

    world.run(start_and_play())


async def alter(
    client: Connection, entity: tuple[tuple[str, str | None], ...], **quotas: float | None
) -> None:
    ops = [OpData(key, value or 0.0, value is None) for key, value in quotas.items()]
    named = [EntityDataInRequest(kind, name) for kind, name in entity]
    response = await client.ask(AlterClientQuotasRequest([EntryDataInRequest(named, ops)]), 1)
    assert [entry.error_code for entry in response.entries] == [0], response


def produce(acks: int = 1) -> ProduceRequest:
    return ProduceRequest(
        None, acks, 30_000, [TopicProduceData(name="t", partition_data=[PartitionProduceData(0, BATCH)])]
    )


def fetch(offset: int = 0, max_bytes: int = 20_000) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[asked])],
    )


async def connect(world: World, machine: Machine) -> Connection:
    client = await world.connect("client", machine)
    await client.ask(CreateTopicsRequest([CreatableTopic("t", 1, 1)]))
    return client


async def pump(world: World, client: Connection, seconds: float) -> tuple[int, int]:
    """Produce one batch after the other. Returns the bytes, and how many responses were throttled."""
    sent = throttled = 0
    end = world.now() + seconds
    while world.now() < end:
        response = await client.ask(produce(), 9, PATIENCE)
        assert response.responses[0].partition_responses[0].error_code == 0
        sent += len(BATCH)
        throttled += response.throttle_time_ms > 0
    return sent, throttled


@pytest.mark.parametrize("entity", ENTITIES.values(), ids=ENTITIES)
def test_a_producer_stays_near_its_limit(entity: tuple[str, str | None]) -> None:
    async def scenario(world: World, machine: Machine) -> None:
        client = await connect(world, machine)
        await alter(client, (entity,), producer_byte_rate=LIMIT)
        await pump(world, client, 11)
        sent, throttled = await pump(world, client, PERIOD)
        assert sent / PERIOD == pytest.approx(LIMIT, rel=0.1)
        assert throttled > 50

    run(scenario)


def test_a_consumer_stays_near_its_limit_and_is_told_nothing_while_it_is_over() -> None:
    async def scenario(world: World, machine: Machine) -> None:
        client = await connect(world, machine)
        for _ in range(10):
            await client.ask(produce(), 9)
        await alter(client, (("user", "ANONYMOUS"),), consumer_byte_rate=LIMIT)
        end, read, empty = world.now() + 11 + PERIOD, 0, 0
        while world.now() < end:
            response = await client.ask(fetch(), 12, PATIENCE)
            found = sum(len(part.records or b"") for topic in response.responses for part in topic.partitions)
            assert (found == 0) == (response.throttle_time_ms > 0)
            empty += not found
            read += found if world.now() > end - PERIOD else 0
        assert read / PERIOD == pytest.approx(LIMIT, rel=0.1)
        assert empty > 5

    run(scenario)


def test_a_fetch_reads_no_more_than_its_windows_allow() -> None:
    async def scenario(world: World, machine: Machine) -> None:
        client = await connect(world, machine)
        for _ in range(10):
            await client.ask(produce(), 9)
        await alter(client, (("client-id", None),), consumer_byte_rate=2_000)  # 20,000 in ten windows
        response = await client.ask(fetch(max_bytes=10**6), 12)
        (part,) = response.responses[0].partitions
        assert response.throttle_time_ms == 0 and 16_000 < len(part.records) <= 20_000

    run(scenario)


def test_a_throttled_client_slows_nobody_else() -> None:
    async def scenario(world: World, machine: Machine) -> None:
        client = await connect(world, machine)
        before, _ = await pump(world, client, 5)
        other = await world.connect("other", machine)
        await alter(client, (("client-id", "slow"),), producer_byte_rate=1_000)
        slow = asyncio.ensure_future(pump(world, await world.connect("slow", machine), 5))
        beside, throttled = await pump(world, other, 5)
        assert throttled == 0 and beside > 0.9 * before
        sent, _ = await slow
        assert sent < 30 * len(BATCH)

    run(scenario)


def test_a_throttled_connection_is_not_read_from() -> None:
    async def scenario(world: World, machine: Machine) -> None:
        client = await connect(world, machine)
        await alter(client, (("user", "ANONYMOUS"),), producer_byte_rate=1_000)
        await client.ask(produce(), 9)
        response = await client.ask(produce(), 9)
        assert response.throttle_time_ms > 5_000
        began = world.now()
        follows = client.send(ApiVersionsRequest("x", "1"), 3)
        await asyncio.sleep(response.throttle_time_ms / 1000 - 0.1)
        assert not follows.done()
        await client.until(follows, PATIENCE)
        assert world.now() - began >= response.throttle_time_ms / 1000 - 0.01

    run(scenario)


def test_acks_0_is_throttled_without_a_response() -> None:
    async def scenario(world: World, machine: Machine) -> None:
        client = await connect(world, machine)
        await alter(client, (("user", "ANONYMOUS"),), producer_byte_rate=1_000)
        for _ in range(2):
            client.send_only(produce(acks=0), 9)
        await asyncio.sleep(0.5)  # or it would be handled with them
        began = world.now()
        await client.ask(ApiVersionsRequest("x", "1"), 3, PATIENCE)
        assert world.now() - began > 5

    run(scenario)


def test_requests_are_timed_only_while_a_request_quota_is_set() -> None:
    async def scenario(world: World, machine: Machine) -> None:
        client = await connect(world, machine)
        node: Any = machine.node
        quotas = node.services.quotas
        assert not quotas.is_active and not quotas.times_requests
        await alter(client, (("user", None),), producer_byte_rate=1e9)
        assert quotas.is_active and not quotas.times_requests
        await alter(client, (("user", None),), request_percentage=50.0)
        assert quotas.times_requests
        metered = quotas.find(18, client_caller())
        metered.spend(20.0)  # seconds
        response = await client.ask(ApiVersionsRequest("x", "1"), 3)
        assert response.throttle_time_ms == 1000, "not longer than one window"
        await alter(client, (("user", None),), producer_byte_rate=None, request_percentage=None)
        assert not quotas.is_active and not quotas.times_requests
        assert (await client.ask(ApiVersionsRequest("x", "1"), 3)).throttle_time_ms == 0

    run(scenario)


def client_caller() -> Any:
    from odradek.model import Caller

    return Caller(client_id="test")


def test_mutations_are_refused_and_the_client_is_throttled() -> None:
    async def scenario(world: World, machine: Machine) -> None:
        client = await connect(world, machine)
        await alter(client, (("user", "ANONYMOUS"),), controller_mutation_rate=1.0)
        topics = [CreatableTopic(name, 10, 1) for name in "abc"]
        response = await client.ask(CreateTopicsRequest(topics), 7)
        assert [topic.error_code for topic in response.topics] == [0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        assert response.throttle_time_ms == 9_000
        began = world.now()
        await client.ask(ApiVersionsRequest("x", "1"), 3, PATIENCE)
        assert world.now() - began > 8.9

    run(scenario)


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, 4),
        ([], True, 0),
        ([ComponentData("user", 0, "ada")], False, 2),
        ([ComponentData("user", 0, "ada")], True, 1),
        ([ComponentData("user", 1, None)], False, 1),
        ([ComponentData("user", 2, None)], False, 3),
        ([ComponentData("user", 2, None), ComponentData("client-id", 2, None)], False, 1),
        ([ComponentData("ip", 2, None)], True, 1),
        ([ComponentData("ip", 1, None)], True, 0),
    ],
)
def test_a_filter_names_entities(components: list[ComponentData], strict: bool, found: int) -> None:
    async def scenario(world: World, machine: Machine) -> None:
        client = await world.connect("client", machine)
        for entity in ((("user", "ada"),), (("user", "ada"), ("client-id", "x")), (("user", None),)):
            await alter(client, entity, producer_byte_rate=1e9)
        await alter(client, (("ip", "10.0.0.1"),), connection_creation_rate=5.0)
        for version in (0, 1):
            response = await client.ask(DescribeClientQuotasRequest(components, strict), version)
            assert response.error_code == 0 and len(response.entries) == found

    run(scenario)


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([ComponentData("", 0, "x")], ErrorCode.INVALID_REQUEST),
        ([ComponentData("topic", 0, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([ComponentData("user", 0, "x"), ComponentData("user", 1, None)], ErrorCode.INVALID_REQUEST),
        ([ComponentData("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([ComponentData("user", 1, "x")], ErrorCode.INVALID_REQUEST),
        ([ComponentData("user", 2, "x")], ErrorCode.INVALID_REQUEST),
        ([ComponentData("user", 9, None)], ErrorCode.INVALID_REQUEST),
        ([ComponentData("ip", 2, None), ComponentData("user", 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_bad_filter_is_refused(components: list[ComponentData], code: ErrorCode) -> None:
    async def scenario(world: World, machine: Machine) -> None:
        client = await world.connect("client", machine)
        response = await client.ask(DescribeClientQuotasRequest(components), 1)
        assert response.error_code == code and response.entries is None and response.error_message

    run(scenario)


def test_a_quota_survives_a_crash_before_and_after_its_snapshot() -> None:
    async def scenario(world: World, machine: Machine) -> None:
        client = await connect(world, machine)
        for crash, limit in enumerate((1_000.0, 2_000.0)):
            await alter(client, (("user", None),), producer_byte_rate=limit)
            if crash:
                node: Any = machine.node
                await node.metadata.maintain()
            machine.cut_power()
            await machine.off()
            await machine.start()
            client = await world.connect("client", machine)
            (entry,) = (await client.ask(DescribeClientQuotasRequest([]), 1)).entries
            assert [(item.key, item.value) for item in entry.values] == [("producer_byte_rate", limit)]
            assert machine.node is not None and machine.node.services.quotas.is_active

    run(scenario)


def test_throttles_are_counted() -> None:
    async def scenario(world: World, machine: Machine) -> None:
        client = await connect(world, machine)
        await alter(client, (("user", "ANONYMOUS"),), producer_byte_rate=1_000, controller_mutation_rate=1.0)
        throttled_ms = 0
        for _ in range(3):
            throttled_ms += (await client.ask(produce(), 9, PATIENCE)).throttle_time_ms
        response = await client.ask(CreateTopicsRequest([CreatableTopic("u", 20, 1)]), 5, PATIENCE)
        assert throttled_ms and response.throttle_time_ms == 9_000
        node: Any = machine.node
        text = await node._new_monitoring(node.services.node.turns).metrics_text()
        assert f'odradek_throttle_seconds_total{{quota="produce"}} {throttled_ms / 1000}\n' in text
        assert 'odradek_throttled_responses_total{quota="mutation"} 1\n' in text
        assert "odradek_throttled_connections_total 0\n" in text

    run(scenario)
