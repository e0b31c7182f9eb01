"""A node that cannot decide says so for each item of a request, also when that happens half-way through it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.controller.controller import Controller
from odradek.controller.requests import create_topics
from odradek.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from tests.broker.in_process import InProcess
from tests.broker.test_unwritable_metadata import REQUESTS, TOPIC

TIMEOUT_S = 30


def run(data_dir: Path, scenario: Callable[[InProcess], Awaitable[None]]) -> None:
    async def main() -> None:
        async with InProcess(str(data_dir)) as broker:
            await broker.create_topic(TOPIC)
            await scenario(broker)

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))


def not_controller(*_: Any) -> Any:
    raise KafkaError(ErrorCode.NOT_CONTROLLER, "Another node is the controller.")


@pytest.mark.parametrize("api", REQUESTS)
def test_each_item_says_not_controller(tmp_path: Path, api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    request, version, outcome, count = REQUESTS[api]

    async def scenario(broker: InProcess) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Controller, "decide", not_controller)
            assert outcome(await broker.ask(request, version)) == [ErrorCode.NOT_CONTROLLER] * count
        assert outcome(await broker.ask(request, version)) == [0] * count

    run(tmp_path, scenario)


def test_producers_wait_for_a_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: InProcess) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Controller, "decide", not_controller)
            refused = await broker.ask(InitProducerIdRequest(None, 60_000), 4)
            assert refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await broker.ask(InitProducerIdRequest(None, 60_000), 4)).error_code == 0

    run(tmp_path, scenario)


def test_what_was_decided_before_is_not_called_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large request is decided in parts: the controller may be another node half-way."""
    decide, decided = Controller.decide, []

    def decide_once(*arguments: Any) -> Any:
        if decided:
            not_controller()
        decided.append(arguments)
        return decide(*arguments)

    async def scenario(broker: InProcess) -> None:
        monkeypatch.setattr(create_topics, "TOPICS_AT_ONCE", 2)
        monkeypatch.setattr(Controller, "decide", decide_once)
        wanted = CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in "abcde"])
        response = await broker.ask(wanted, 7)
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            *(("a", 0), ("b", 0)),
            *((name, ErrorCode.NOT_CONTROLLER) for name in "cde"),
        ]
        assert set(broker.broker.metadata.image.topics) == {TOPIC, "a", "b"}

    run(tmp_path, scenario)
