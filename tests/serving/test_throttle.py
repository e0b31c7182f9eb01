"""Tests that every response that has a field for it says how long a client is throttled, and that one place sets it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from odradek.apis.messages import request_type, response_type
from odradek.apis.row import Api
from odradek.apis.table import APIS, BROKER
from odradek.records.record import Record, build_batch
from odradek.serving.request import Request
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.schema import fields_of
from tests.outside_world import ROOT
from tests.serving.sample_requests import sample
from tests.serving.test_entrances import Entered

THROTTLE_MS = 1234
THROTTLED = [
    api
    for api in APIS.values()
    if api.modules and any(field.name == "throttle_time_ms" for field in fields_of(response_type(api.key)))
]


def throttle(request: Request) -> None:
    request.throttle_ms = THROTTLE_MS


@pytest.mark.parametrize("api", THROTTLED, ids=lambda api: api.name)
def test_a_response_says_how_long_its_client_is_throttled(api: Api, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Entered(str(tmp_path)) as node:
            node.on_request = throttle
            message = sample(request_type(api.key), api.max_version)
            if api.name == "Produce":
                message.acks = 1
            ask = node.ask if BROKER in api.modules else node.ask_controller
            async with asyncio.timeout(60):
                assert (await ask(message, api.max_version)).throttle_time_ms == THROTTLE_MS

    asyncio.run(scenario())


def test_most_responses_have_the_field() -> None:
    assert len(THROTTLED) > 50


@pytest.mark.parametrize("version", [4, 12])
def test_with_records(tmp_path: Path, version: int) -> None:
    """Produce and Fetch write the responses of one partition in a way of their own."""

    async def scenario() -> None:
        async with Entered(str(tmp_path)) as node:
            await node.create_topic("t")
            node.on_request = throttle
            batch = bytes(build_batch([Record(0, 0, None, b"x")]))
            for topic, code in (("t", 0), ("not there", 3)):
                data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, batch)])
                produced = await node.ask(ProduceRequest(None, -1, 30_000, [data]), version)
                assert produced.responses[0].partition_responses[0].error_code == code
                assert produced.throttle_time_ms == THROTTLE_MS
                asked = FetchTopic(topic=topic, partitions=[FetchPartition(partition_max_bytes=1000)])
                fetched = await node.ask(FetchRequest(max_wait_ms=0, topics=[asked]), version)
                assert fetched.responses[0].partitions[0].error_code == code
                assert fetched.throttle_time_ms == THROTTLE_MS

    asyncio.run(scenario())


def test_it_is_zero_unless_something_says_otherwise(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Entered(str(tmp_path)) as node:
            seen: list[Any] = []
            node.on_request = lambda request: seen.append(request.throttle_ms)
            await node.create_topic("t")
            assert seen == [0]

    asyncio.run(scenario())


def test_no_handler_sets_it() -> None:
    setters = [
        path.relative_to(ROOT).as_posix()
        for package in ("api", "services", "coordinators", "controller", "serving", "broker")
        for path in sorted((ROOT / package).rglob("*.py"))
        if "throttle_time_ms" in path.read_text()
    ]
    # The controller says how long its quota throttles a client, the broker in front of it passes that on.
    assert setters == ["controller/mutations.py", "serving/cluster.py", "serving/reply.py"]
