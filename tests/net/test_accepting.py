"""Accepting connections when there is no room for them: nothing spins, nobody is forgotten, the log stays short."""

import asyncio
import errno
import logging
import math
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek.host.real import RealHost
from odradek.net.bounds import Bounds
from odradek.net.security import PLAINTEXT
from odradek.net.server import ACCEPT_PAUSE_SECONDS, Rate, Server
from odradek.net.transport import Transport

BOUNDS = Bounds(1 << 20, 1 << 20, 100, 100, 600, -1, -1)


class Silent:
    """A client that is connected and says nothing."""

    is_busy = False

    def __init__(self, transport: Transport) -> None:
        pass

    def finish(self) -> None:
        pass

    def lost(self, reason: str) -> None:
        pass

    def reading_ended(self) -> None:
        pass


class StubHost:
    """A host that notes who is watched, and what is to be called later."""

    def __init__(self) -> None:
        self.loop = self
        self.watched: dict[int, tuple[Callable[..., None], tuple[Any, ...]]] = {}
        self.later: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def add_reader(self, descriptor: int, callback: Callable[..., None], *arguments: Any) -> None:
        self.watched[descriptor] = (callback, arguments)

    def remove_reader(self, descriptor: int) -> None:
        self.watched.pop(descriptor, None)

    def call_later(self, seconds: float, callback: Callable[..., None], *arguments: Any) -> None:
        self.later.append((seconds, callback, arguments))

    def monotonic(self) -> float:
        return 0.0

    def readable(self, descriptor: int) -> None:
        callback, arguments = self.watched[descriptor]
        callback(*arguments)


class StubListener:
    def __init__(self) -> None:
        self.waiting: list[socket.socket] = []
        self.error: OSError | None = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.attempts = 0

    def fileno(self) -> int:
        return 7

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        self.attempts += 1
        if self.error is not None:
            raise self.error
        if not self.waiting:
            raise BlockingIOError
        return self.waiting.pop(), ("127.0.0.1", 1)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_listener_that_cannot_accept_pauses_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    host, listener = StubHost(), StubListener()
    server = Server(host, Silent, BOUNDS)  # type: ignore[arg-type]
    server._listeners.append(listener)  # type: ignore[arg-type]
    server._securities["PLAINTEXT"] = PLAINTEXT
    host.add_reader(7, server._accept, listener, "PLAINTEXT")
    with caplog.at_level(logging.INFO):
        for attempt in range(1, 6):
            host.readable(7)
            assert listener.attempts == attempt  # one for each pause
            assert 7 not in host.watched
            ((seconds, callback, arguments),) = host.later
            assert seconds == ACCEPT_PAUSE_SECONDS
            host.later.clear()
            callback(*arguments)
            assert 7 in host.watched
        listener.error = None
        client = socket.create_server(("127.0.0.1", 0))
        with socket.create_connection(client.getsockname()) as theirs:
            listener.waiting.append(client.accept()[0])
            host.readable(7)
            assert server.connection_count == 1
            assert theirs.fileno() >= 0
        client.close()
    assert 7 in host.watched
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "Too many open files" in caplog.records[0].message
    server.close_connections()


def test_a_connection_that_cannot_be_set_up_is_closed(
    pair: tuple[socket.socket, socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    """A socket that is no TCP socket refuses the options: as one that was reset does on some systems."""
    ours, theirs = pair
    server = Server(StubHost(), Silent, BOUNDS)  # type: ignore[arg-type]
    server._securities["PLAINTEXT"] = PLAINTEXT
    server._welcome(ours, ("127.0.0.1", 1), "PLAINTEXT")
    assert theirs.recv(1) == b""
    assert (server.connection_count, dict(server._per_address)) == (0, {})
    assert "lost before it was set up" in caplog.text


def test_no_more_connections_than_there_are_descriptors_for(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        server = Server(RealHost(asyncio.get_running_loop()), Silent, BOUNDS, max_sockets=3)
        port = server.listen("PLAINTEXT", "127.0.0.1", 0)
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        for client in clients[3:]:
            client.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
        assert server.connection_count == 3
        for client in clients:
            client.close()
        while server.connection_count:
            await asyncio.sleep(0)
        with socket.create_connection(("127.0.0.1", port)):
            while server.connection_count != 1:
                await asyncio.sleep(0)
        server.stop_listening()
        server.close_connections()

    asyncio.run(asyncio.wait_for(scenario(), 30))
    refused = [record.message for record in caplog.records if "refused" in record.message]
    assert len(refused) == 1
    assert "leaves room for 3 connections" in refused[0]


def test_without_a_limit_everybody_may_come_at_once() -> None:
    """Also when the clock has not moved since the last one: infinitely many in no time are not a number."""
    rate = Rate(lambda: 0.0, math.inf)
    assert [rate.wait_seconds() for _ in range(3)] == [0.0, 0.0, 0.0]


def test_what_a_rate_lets_through_follows_its_clock() -> None:
    now = 0.0
    rate = Rate(lambda: now, 2.0)
    assert [rate.wait_seconds() for _ in range(3)] == [0.0, 0.0, 0.5]
    now = 0.5
    assert [rate.wait_seconds() for _ in range(2)] == [0.0, 0.5]
    now = 60.0
    assert [rate.wait_seconds() for _ in range(3)] == [0.0, 0.0, 0.5]
