"""How many requests may wait for their answers: of one connection, and of all. What is over the bound stays unread."""

import asyncio
import socket
import time

import pytest

from odradek.host.real import RealHost
from odradek.net.bounds import Bounds
from odradek.net.server import Server
from odradek.requests import conversation
from odradek.requests.conversation import Conversations
from odradek.requests.request import Request
from odradek.requests.turns import Turns
from odradek.wire.frame import encode_request
from odradek.wire.messages.api_versions import ApiVersionsRequest

BOUNDS = Bounds(1 << 20, 1 << 20, 100, 100, 600, -1, -1)
FRAME = bytes(encode_request(ApiVersionsRequest(), 18, 0, 1, "test"))


class Parking:
    """A broker that answers when it is told to."""

    def __init__(self) -> None:
        self.turns = Turns(time.monotonic)
        loop = asyncio.get_running_loop()
        self.conversations = Conversations(self, loop.create_task)
        self.server = Server(RealHost(loop), self.conversations.begin, BOUNDS)
        self.port = self.server.listen("PLAINTEXT", "127.0.0.1", 0)
        self.parked: list[Request] = []

    def finish(self) -> None:
        pass

    def keeps(self, api_key: int, size: int) -> bool:
        return False

    def dispatch(self, request: Request, frame: memoryview, body: int) -> None:
        self.parked.append(request)

    def answer_all(self) -> None:
        parked, self.parked = self.parked, []
        for request in parked:
            request.answer_nothing()

    def connect(self, frames: int) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port))
        client.sendall(FRAME * frames)
        return client

    def close(self) -> None:
        self.server.stop_listening()
        self.server.close_connections()


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
        assert len({request.client_address for request in broker.parked}) == 3
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
