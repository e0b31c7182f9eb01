"""Tests of what a connection may do in one turn of the event loop, counted by a clock that moves with the work."""

import asyncio

from odradek.serving.request import Request
from odradek.serving.turns import TURN_SECONDS, Turns
from odradek.wire.codec import Steps
from tests.net.stub_broker import FRAME, StubBroker

COST = TURN_SECONDS / 9.5  # ten of them are a little more than a turn


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Working(StubBroker):
    """A broker whose every request costs a tenth of a turn, and which counts those of each turn."""

    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__(self.clock)
        self.handled: list[str] = []
        self.by_turn: list[list[str]] = []

    def dispatch(self, request: Request, frame: memoryview, body: int) -> None:
        self.clock.now += COST
        self.handled.append(request.caller.address)
        request.answer_nothing()

    async def run_until(self, count: int) -> None:
        """Note what is handled in each turn of the event loop."""
        total = 0
        while total < count:
            await asyncio.sleep(0)
            total += len(self.handled)
            if self.handled:
                self.by_turn.append(self.handled)
                self.handled = []


def test_requests_that_arrive_together_are_handled_in_several_turns() -> None:
    async def scenario() -> None:
        broker = Working()
        with broker.connect(1000):
            await broker.run_until(1000)
            assert max(map(len, broker.by_turn)) == 10
        broker.close()

    asyncio.run(scenario())


def test_however_many_connections_have_much_to_ask() -> None:
    """In a turn one of them has its share, and those that come new have one request each."""

    async def scenario() -> None:
        broker = Working()
        clients = [broker.connect(100) for _ in range(20)]
        await broker.run_until(2000)
        assert max(map(len, broker.by_turn)) <= 10 + len(clients) + 10
        assert sum(map(len, broker.by_turn)) == 2000
        steady = broker.by_turn[20:]
        assert max(map(len, steady)) <= 10
        for client in clients:
            client.close()
        broker.close()

    asyncio.run(scenario())


def test_a_request_of_somebody_else_is_handled_in_between() -> None:
    async def scenario() -> None:
        broker = Working()
        with broker.connect(1000) as greedy, broker.connect(0) as modest:
            await broker.run_until(500)
            modest.sendall(FRAME)
            await broker.run_until(1)
            host, port = modest.getsockname()
            address = f"{host}:{port}"
            before = sum(map(len, broker.by_turn))
            while not any(address in turn for turn in broker.by_turn):
                await broker.run_until(1)
            assert sum(map(len, broker.by_turn)) - before < 100
            assert greedy.fileno() >= 0
        broker.close()

    asyncio.run(scenario())


# Steps


def counting(clock: Clock, done: list[int], count: int) -> Steps[str]:
    for number in range(count):
        clock.now += COST
        done.append(number)
        yield
    return "result"


def test_work_goes_on_in_later_turns() -> None:
    async def scenario() -> None:
        clock, done = Clock(), list[int]()
        turns = Turns(clock)
        work = asyncio.create_task(turns.complete(counting(clock, done, 95)))
        by_turn, before = [], 0
        while not work.done():
            await asyncio.sleep(0)
            by_turn.append(len(done) - before)
            before = len(done)
        assert work.result() == "result"
        assert max(by_turn) == 11, "the first step of a turn is free"
        assert sum(by_turn) == 95

    asyncio.run(scenario())


def test_one_of_those_that_wait_is_let_in_for_each_turn() -> None:
    async def scenario() -> None:
        clock, done = Clock(), list[int]()
        turns = Turns(clock)
        works = [asyncio.create_task(turns.finish(counting(clock, done, 50))) for _ in range(20)]
        before = 0
        while not all(work.done() for work in works):
            await asyncio.sleep(0)
            assert len(done) - before <= 11
            before = len(done)
        assert len(done) == 1000

    asyncio.run(scenario())
