"""Slow requests and long turns of the event loop are named, on virtual time; nothing is timed while all is well."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from odradek.host import log_lines
from odradek.host.simulated import NothingWillHappen, SimulatedHost, VirtualLoop
from odradek.serving.conversation import Conversations
from odradek.serving.request import Request
from odradek.serving.turns import Turns
from odradek.serving.watch import WAIT_BY_DESIGN, WATCHED_SECONDS, Watch
from odradek.storage.disk.simulated import SimulatedFiles
from tests.serving.wires import NotedTransport, numbered_frame

METADATA, FETCH = 3, 1
CLIENT = '127.0.0.1:1 (client "test")'


class Broker:
    """Answers nobody until it is told to."""

    def __init__(self, slow_request_ms: int = 1_000, slow_turn_ms: int = 500) -> None:
        self.loop = VirtualLoop()
        self.host = SimulatedHost(self.loop, Random(1), SimulatedFiles())
        self.turns = Turns(self.host.monotonic)
        self.watch = Watch(self.host, slow_request_ms, slow_turn_ms)
        self.conversations = Conversations(self, self.host.create_task, watch=self.watch)
        self.parked: list[Request] = []
        self.ticks = 0
        call_later = self.host.call_later

        def counted(*arguments: Any) -> Any:
            self.ticks += 1
            return call_later(*arguments)

        self.host.call_later = counted  # type: ignore[method-assign]

    def dispatch(self, request: Request, frame: memoryview, body: int) -> None:
        self.parked.append(request)

    def finish(self) -> None:
        pass

    def keeps(self, api_key: int, size: int) -> bool:
        return False

    def connect(self) -> NotedTransport:
        return NotedTransport(self.conversations.begin)

    def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.host.context.run(log_lines.enter, 1, self.host)
        self.host.run(work())


@pytest.fixture(autouse=True)
def level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_a_request_that_waits_is_named_while_it_waits_and_when_it_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker()

    async def work() -> None:
        broker.connect().arrive(numbered_frame(1, METADATA))
        broker.parked[0].subject = "3 partitions to be opened"
        await asyncio.sleep(0.9)
        assert caplog.messages == []
        await asyncio.sleep(1.1)
        assert caplog.messages == [
            f"slow request: Metadata v0 from {CLIENT} has waited 1 s for 3 partitions to be opened"
        ]
        assert caplog.records[0].fields["api"] == "Metadata"  # type: ignore[attr-defined]
        await asyncio.sleep(3)
        broker.parked[0].answer_nothing()
        await asyncio.sleep(1)

    broker.run(work)
    assert caplog.messages[1:] == [f"slow request: Metadata v0 from {CLIENT} got its response after 5 s"]


def test_requests_that_are_answered_in_time_are_not_named(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()

    async def work() -> None:
        transport = broker.connect()
        for number in range(50):
            transport.arrive(numbered_frame(number, METADATA))
            await asyncio.sleep(0.4)
            broker.parked.pop().answer_nothing()
        await asyncio.sleep(5)

    broker.run(work)
    assert caplog.messages == []


@pytest.mark.parametrize("api_key", sorted(WAIT_BY_DESIGN))
def test_what_waits_by_design_is_not_slow(api_key: int, caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()

    async def work() -> None:
        broker.connect().arrive(numbered_frame(1, api_key))
        await asyncio.sleep(60)

    broker.run(work)
    assert caplog.messages == []


def test_many_slow_requests_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()

    async def work() -> None:
        for number in range(100):
            broker.connect().arrive(numbered_frame(number, METADATA))
        await asyncio.sleep(90)

    broker.run(work)
    assert len(caplog.messages) == 2
    assert caplog.messages[1] == "… 99 more in the last 60 s from 127.0.0.1: slow Metadata requests"


def test_a_client_that_gives_up(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()

    async def work() -> None:
        transport = broker.connect()
        transport.arrive(numbered_frame(1, METADATA))
        await asyncio.sleep(2)
        transport.close("closed by the peer")
        await asyncio.sleep(1)

    broker.run(work)
    assert "was given up, because its client disconnected, after 2" in caplog.messages[-1]


def test_a_turn_that_takes_long(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()

    async def work() -> None:
        transport = broker.connect()
        transport.arrive(numbered_frame(1, FETCH))
        await asyncio.sleep(0)
        broker.loop.spend(2)
        await asyncio.sleep(1)

    broker.run(work)
    (line,) = caplog.messages
    assert line.startswith("all clients waited for 1.8 s: the event loop or the machine was busy.")
    assert line.endswith(f"Handled last: Fetch v0 from {CLIENT}")


def test_thresholds_of_minus_one_mean_never(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(-1, -1)

    async def work() -> None:
        broker.connect().arrive(numbered_frame(1, METADATA))
        broker.loop.spend(5)
        await asyncio.sleep(60)

    broker.run(work)
    assert caplog.messages == []


def test_nothing_is_looked_at_while_nothing_happens() -> None:
    broker = Broker()

    async def work() -> None:
        await asyncio.sleep(60)
        assert broker.ticks == 0
        transport = broker.connect()
        for number in range(1_000):  # one timer for all of them
            transport.arrive(numbered_frame(number, METADATA))
            broker.parked.pop().answer_nothing()
        transport.arrive(numbered_frame(0, FETCH))
        await asyncio.sleep(3_600)
        assert broker.ticks <= 3

    broker.run(work)


def test_one_that_is_stuck_for_good_does_not_keep_the_timer_going() -> None:
    """Else a simulation in which nobody is ever answered would not end."""
    broker = Broker()

    async def work() -> None:
        broker.connect().arrive(numbered_frame(1, METADATA))
        await asyncio.Event().wait()

    with pytest.raises(NothingWillHappen):
        broker.run(work)
    assert broker.host.monotonic() < 2 * WATCHED_SECONDS
    for task in asyncio.all_tasks(broker.loop):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            broker.loop.run_until_complete(task)
