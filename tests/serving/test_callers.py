"""Tests of who asks: a client by its connection, a node as itself, also where its request is forwarded."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.model import ANONYMOUS, Caller, Principal, node_caller
from odradek.serving.envelope import unwrap, wrap
from odradek.serving.naming import sender
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.wire.messages.create_topics import CreateTopicsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.in_process import InProcess

THIS_NODE = Principal("Node", "1")


class Overheard(InProcess):
    """A broker that keeps the callers of all requests to its controller."""

    def __init__(self, data_dir: str) -> None:
        super().__init__(data_dir)
        self.callers: list[tuple[str, Caller]] = []
        metadata: Any = self.broker.metadata
        decide = metadata.decide_here

        async def decide_here(request: Any, version: int, caller: Caller) -> Any:
            self.callers.append((type(request).__name__, caller))
            return await decide(request, version, caller)

        metadata.decide_here = decide_here


def scenario(tmp_path: Path, play: Callable[[Overheard], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Overheard(str(tmp_path)) as node:
            await play(node)

    asyncio.run(run())


def test_a_node_asks_as_itself(tmp_path: Path) -> None:
    async def play(node: Overheard) -> None:
        assert "BrokerRegistrationRequest" in [name for name, _ in node.callers]
        await node.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        await node.broker.metadata.ask(AllocateProducerIdsRequest(1, 0))
        assert [name for name, _ in node.callers[-2:]] == [
            "CreateTopicsRequest",
            "AllocateProducerIdsRequest",
        ]
        assert {caller.principal for _, caller in node.callers} == {THIS_NODE}

    scenario(tmp_path, play)


def test_a_topic_that_is_created_for_a_client_is_asked_for_in_its_name(tmp_path: Path) -> None:
    async def play(node: Overheard) -> None:
        await node.ask(MetadataRequest([MetadataRequestTopic(name="new")], True), 12)
        client = Caller(ANONYMOUS, "127.0.0.1:1", "PLAINTEXT", "test")
        assert node.callers[-1] == ("CreateTopicsRequest", client)

    scenario(tmp_path, play)


def test_a_node_stays_itself_in_an_envelope() -> None:
    forwarded = unwrap(wrap(CreateTopicsRequest(), 7, node_caller(3), 5))
    assert forwarded.caller == node_caller(3)
    assert forwarded.caller.is_node
    assert sender(forwarded.caller) == "broker 3 itself"


def test_no_client_is_a_node() -> None:
    assert not Caller().is_node
    assert not Caller(Principal("User", "1")).is_node


@pytest.mark.parametrize(
    ("address", "host"),
    [("10.0.0.7:9092", "10.0.0.7"), ("::1:9092", "::1"), ("10.0.0.7", "10.0.0.7"), ("", "")],
)
def test_the_host_of_a_caller(address: str, host: str) -> None:
    assert Caller(address=address).host == host
