"""Memory for requests that arrive in pieces: what counts is what has arrived, and nobody waits forever."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest

from odradek.net import stream
from odradek.net.bounds import Bounds
from odradek.net.memory import RequestMemory
from odradek.serving.request import Request
from odradek.wire.frame import encode_request
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.net.stub_broker import StubBroker

LIMIT = 1 << 20
BOUNDS = Bounds(100 << 20, LIMIT, 100, 100, 600, -1, -1)


def frame_of(size: int) -> bytes:
    """A whole request that is at least so large."""
    return bytes(encode_request(SaslAuthenticateRequest(bytes(size)), 36, 1, 1, "test"))


class Counting(StubBroker):
    """A broker that counts the bytes it was asked to handle, and answers nothing."""

    def __init__(self) -> None:
        super().__init__(bounds=BOUNDS)
        self.handled: list[int] = []
        self.effect: Awaitable[None] | None = None

    def dispatch(self, request: Request, frame: memoryview, body: int) -> Awaitable[None] | None:
        self.handled.append(len(frame))
        request.answer_nothing()
        effect, self.effect = self.effect, None
        return effect

    async def send(self, data: bytes) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port))
        client.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(client, data)
        return client

    def close(self) -> None:
        super().close()
        assert self.server.pool.memory.in_use == 0


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0.001)


def test_a_claim_holds_what_has_arrived() -> None:
    async def scenario() -> None:
        broker = Counting()
        clients = [await broker.send(struct.pack(">i", 90 << 20) + bytes(696)) for _ in range(6)]
        await until(lambda: broker.server.pool.memory.in_use >= 6 * 696)
        assert broker.server.pool.memory.in_use == 6 * 696
        clients.append(await broker.send(frame_of(800_000)))
        await until(lambda: len(broker.handled) == 1)
        assert broker.server.connection_count == 7, "nobody had to give way"
        for client in clients:
            client.close()
        await settle()
        broker.close()

    asyncio.run(scenario())


def test_more_than_there_is_room_for_arrives_one_after_the_other() -> None:
    async def scenario() -> None:
        broker = Counting()
        frame = frame_of(900_000)
        clients = [await broker.send(frame[: len(frame) // 2]) for _ in range(4)]
        await until(lambda: broker.server.pool.memory.is_waited_for)
        assert LIMIT <= broker.server.pool.memory.in_use < 2 * LIMIT + len(frame)
        rest = [asyncio.create_task(finish(client, frame[len(frame) // 2 :])) for client in clients]
        await asyncio.gather(*rest)
        while len(broker.handled) < 4:
            await asyncio.sleep(0.001)
        assert broker.server.pool.memory.in_use == 0
        for client in clients:
            client.close()
        broker.close()

    asyncio.run(scenario())


async def finish(client: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(client, data)


def test_the_oldest_idle_claim_gives_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stream, "IDLE_FRAME_SECONDS", 0.0)

    async def scenario() -> None:
        broker = Counting()
        idle = [await broker.send(struct.pack(">i", 700_000) + bytes(600_000)) for _ in range(2)]
        await until(lambda: broker.server.pool.memory.is_exhausted)
        active = await broker.send(frame_of(700_000))
        await until(lambda: broker.server.pool.memory.is_waited_for)
        assert broker.handled == []
        broker.server.pool.close_late()
        while not broker.handled:
            await asyncio.sleep(0.001)
        assert broker.server.connection_count == 2, "one that was idle, and the one that was served"
        for client in (*idle, active):
            client.close()
        await settle()
        broker.close()

    asyncio.run(scenario())
    assert caplog.text.count("its request does not arrive, and other clients wait for the memory") == 1


def test_memory_counts_until_the_request_has_been_handled() -> None:
    async def scenario() -> None:
        broker = Counting()
        broker.effect = done = asyncio.get_running_loop().create_future()
        client = await broker.send(frame_of(500_000) * 2)
        await until(lambda: broker.server.pool.memory.in_use >= 1_000_000)  # one being handled, one behind it
        assert len(broker.handled) == 1
        done.set_result(None)
        await until(lambda: len(broker.handled) == 2)
        await until(lambda: broker.server.pool.memory.in_use == 0)
        client.close()
        broker.close()

    asyncio.run(scenario())


class Waiting:
    def __init__(self) -> None:
        self.told = 0

    def memory_is_free(self) -> None:
        self.told += 1


def test_only_the_first_goes_on_when_nothing_is_left() -> None:
    memory = RequestMemory(100)
    first, second = Waiting(), Waiting()
    memory.begin(first)
    memory.begin(second)
    memory.take(100)
    assert memory.may_grow(first)
    assert not memory.may_grow(second)
    memory.end(first)
    assert (first.told, second.told) == (0, 1)
    assert memory.may_grow(second), "now it is the first"
