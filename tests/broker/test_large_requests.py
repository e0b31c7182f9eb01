"""No request does much in one turn of the event loop: counted in function calls, for a huge request to every API.

The broker's clock moves with the calls that are made, so that a turn's share is a number of calls.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from bench import stall
from odradek.apis.messages import response_type
from odradek.model import ANONYMOUS, Caller
from odradek.records.compression import Codec
from odradek.serving.dispatch import Dispatcher
from odradek.serving.request import Request
from odradek.serving.turns import TURN_SECONDS
from odradek.wire.codec import read_message
from odradek.wire.frame import SIZE, has_tagged_response_header, read_request_header
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.produce import ProduceResponse
from tests.broker.in_process import InProcess

MANY = 6_000
CALLS_PER_TURN = 4_000
ALLOWED_CALLS = 25_000  # a turn ends a little after its share is used up, and others work in it too
# What one decision of the controller writes cannot be cut; pipelined requests are for the connection to cut.
LEFT_OUT = (
    "nothing",
    "Produce,",
    "pipelined",
    "a million times",
    "10,000",
    "again",
    "of all",
    ", all",
    "ListGroups",
    "ListConfig",
)
CASES = [case for case in stall.CASES if not any(word in case.name for word in LEFT_OUT)]


class Work:
    """Counts function calls, and is a clock that they move."""

    def __init__(self) -> None:
        self.calls = 0
        self.largest_turn = 0

    def __call__(self) -> float:
        return self.calls * TURN_SECONDS / CALLS_PER_TURN

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            self.calls += 1

    @contextmanager
    def counted(self) -> Iterator[None]:
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    async def watch_turns(self) -> None:
        while True:
            before = self.calls
            await asyncio.sleep(0)
            self.largest_turn = max(self.largest_turn, self.calls - before)


class CountedBroker:
    def __init__(self, broker: InProcess, work: Work) -> None:
        self.work = work
        broker.broker.services.node.turns.clock = work
        self._dispatcher = Dispatcher(broker.broker.services)

    async def ask(self, frame: bytes) -> Any:
        """The response; and the work of the largest turn is noted."""
        view = memoryview(bytearray(frame))[SIZE.size :]
        header = read_request_header(view)
        answered = asyncio.get_running_loop().create_future()
        request = Request(
            header,
            Caller(ANONYMOUS, "127.0.0.1:1", "PLAINTEXT", header.client_id),
            answered.set_result,
            self._dispatcher.turns,
        )
        watcher = asyncio.create_task(self.work.watch_turns())
        await asyncio.sleep(0)
        with self.work.counted():
            effect = self._dispatcher.dispatch(request, view, header.body) or self._dispatcher.finish()
            if effect is not None:
                await effect
            await answered
        watcher.cancel()
        data = b"".join(bytes(part) for part in request.parts or ())
        body = 9 if has_tagged_response_header(header.api_key, header.version) else 8
        return read_message(response_type(header.api_key), header.version, data, body)[0]


async def prepare(broker: InProcess) -> None:
    topics = [
        CreatableTopic(stall.TOPIC, 2, 1),
        CreatableTopic(stall.COMPACTED, 1, 1, configs=[CreatableTopicConfig("cleanup.policy", "compact")]),
    ]
    await broker.ask(CreateTopicsRequest(topics, 30_000), 7)
    await broker.ask(FindCoordinatorRequest(key=stall.GROUP), 3)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_work_of_a_turn_is_bounded(
    case: stall.Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall, "MANY", MANY)

    async def scenario() -> None:
        settings = {"offsets.topic.num.partitions": "5", "auto.create.topics.enable": "false"}
        async with InProcess(str(tmp_path), settings=settings) as broker:
            await prepare(broker)
            counted = CountedBroker(broker, Work())
            await counted.ask(case.stream())  # imports and compiles what it needs
            counted.work.largest_turn = 0
            await counted.ask(case.stream())
            assert counted.work.largest_turn <= ALLOWED_CALLS

    asyncio.run(scenario())


def test_an_offset_that_is_committed_many_times_is_committed_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with InProcess(str(tmp_path)) as broker:
            await prepare(broker)
            counted = CountedBroker(broker, Work())
            response = await counted.ask(stall.committed(5000, stall.same))
            assert [
                (topic.name, [each.error_code for each in topic.partitions]) for topic in response.topics
            ] == [(stall.TOPIC, [0])]
            response = await counted.ask(stall.committed(5000, lambda at: at))
            codes = [
                (each.partition_index, each.error_code)
                for topic in response.topics
                for each in topic.partitions
            ]
            assert codes == [(at, 0 if at < 2 else 3) for at in range(5000)]

    asyncio.run(scenario())


def test_all_topics_are_described_though_it_takes_several_turns(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with InProcess(str(tmp_path)) as broker:
            await prepare(broker)
            created = await broker.ask(
                CreateTopicsRequest([CreatableTopic(f"t{at}", 1, 1) for at in range(1000)], 30_000), 7
            )
            assert [topic.error_code for topic in created.topics] == [0] * 1000
            counted = CountedBroker(broker, Work())
            response = await counted.ask(stall.frame(MetadataRequest(None), 9))
            assert {f"t{at}" for at in range(1000)} <= {topic.name for topic in response.topics}
            assert counted.work.largest_turn <= ALLOWED_CALLS

    asyncio.run(scenario())


def test_a_produce_that_takes_long_keeps_its_place_among_those_around_it(tmp_path: Path) -> None:
    """The requests before it are appended before it, and those behind it after it, all in one run."""

    async def scenario() -> None:
        async with InProcess(str(tmp_path)) as broker:
            await prepare(broker)
            dispatcher = Dispatcher(broker.broker.services)
            responses: list[Request] = []
            for count in (3, 5_000, 4):
                frame = stall.produced(stall.COMPACTED, [0], stall.batch(count, Codec.GZIP))
                view = memoryview(bytearray(frame))[SIZE.size :]
                header = read_request_header(view)
                request = Request(
                    header,
                    Caller(ANONYMOUS, "127.0.0.1:1", "PLAINTEXT", header.client_id),
                    responses.append,
                    dispatcher.turns,
                )
                assert dispatcher.dispatch(request, view, header.body) is None
            effect = dispatcher.finish()
            assert len(responses) == 1, "the first is done, the others are not"
            assert effect is not None
            await effect
            offsets = []
            for answered in responses:
                data = b"".join(bytes(part) for part in answered.parts or ())
                response, _ = read_message(ProduceResponse, 9, data, 9)
                (only,) = response.responses[0].partition_responses
                offsets.append((only.error_code, only.base_offset))
            assert offsets == [(0, 0), (0, 3), (0, 5_003)]
            assert len(broker.records(stall.COMPACTED)) == 5_007

    asyncio.run(scenario())
