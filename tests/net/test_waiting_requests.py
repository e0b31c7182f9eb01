"""Tests of how many requests may wait for responses: of one connection, and of all. What is over the bound stays
unread.
"""

import asyncio

import pytest

from odradek.serving import conversation
from odradek.serving.request import Request
from tests.net.stub_broker import StubBroker


class Parking(StubBroker):
    """A broker that responds when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.parked: list[Request] = []

    def dispatch(self, request: Request, frame: memoryview, body: int) -> None:
        self.parked.append(request)

    def answer_all(self) -> None:
        parked, self.parked = self.parked, []
        for request in parked:
            request.answer_nothing()


async def settle() -> None:
    """Until the event loop has nothing more to do."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_of_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MAX_WAITING", 10)

    async def scenario() -> None:
        broker = Parking()
        with broker.connect(35):
            counts = []
            for _ in range(4):
                await settle()
                counts.append(len(broker.parked))
                broker.answer_all()
            assert counts == [10, 10, 10, 5]
        broker.close()

    asyncio.run(scenario())


def test_of_all_connections_but_one_of_each_is_always_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MAX_WAITING_IN_ALL", 10)

    async def scenario() -> None:
        broker = Parking()
        clients = [broker.connect(8)]
        await settle()
        clients += [broker.connect(8) for _ in range(2)]
        await settle()
        assert len(broker.parked) <= 10 + 2
        assert len({request.caller.address for request in broker.parked}) == 3
        handled = 0
        while broker.parked:
            handled += len(broker.parked)
            broker.answer_all()
            await settle()
        assert handled == 24
        assert broker.conversations.waiting_in_all == 0
        for client in clients:
            client.close()
        broker.close()

    asyncio.run(scenario())


def test_a_closed_connection_waits_for_nothing() -> None:
    async def scenario() -> None:
        broker = Parking()
        client = broker.connect(5)
        await settle()
        assert broker.conversations.waiting_in_all == 5
        client.close()
        await settle()
        assert broker.conversations.waiting_in_all == 0
        broker.answer_all()
        broker.close()

    asyncio.run(scenario())
