"""Pages by HTTP: what is understood, what is refused, and that connections are kept and bounded."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from odradek.broker.main import new_event_loop
from odradek.host.real import RealHost
from odradek.net import pages
from odradek.net.pages import Asked, Exchange, Page, PageServer, response


def asked(*pieces: bytes) -> list[Asked]:
    exchange, found = Exchange(), []
    for piece in pieces:
        exchange.receive(piece)
        while (one := exchange.next_request()) is not None:
            found.append(one)
            if one.is_last:
                return found
    return found


def test_requests_may_arrive_in_pieces_and_together() -> None:
    both = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\nHEAD /healthz?a=b HTTP/1.1\r\n\r\n"
    wanted = [Asked("/metrics"), Asked("/healthz", is_head=True)]
    assert asked(both) == wanted
    assert asked(*(both[at : at + 1] for at in range(len(both)))) == wanted


@pytest.mark.parametrize(
    ("head", "is_last"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nConnection: Close\r\n\r\n", True),
        (b"GET / HTTP/1.0\r\n\r\n", True),
        (b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", False),
    ],
)
def test_when_the_connection_ends(head: bytes, is_last: bool) -> None:
    assert [one.is_last for one in asked(head)] == [is_last]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST / HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"\x16\x03\x01\r\n\r\n", 400),
        (b"GET / SPDY/3\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * pages.MAX_HEAD_BYTES, 431),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * pages.MAX_HEAD_BYTES + b"\r\n\r\n", 431),
    ],
)
def test_what_is_refused(head: bytes, status: int) -> None:
    (one,) = asked(head)
    assert one.refusal is not None
    assert (one.refusal.status, one.is_last) == (status, True)


def test_a_response_says_how_long_it_is() -> None:
    head, _, body = response(Page(200, "läuft\n"), Asked("/")).partition(b"\r\n\r\n")
    assert head.splitlines()[0] == b"HTTP/1.1 200 OK"
    assert b"Content-Length: 7" in head
    assert body == "läuft\n".encode()
    assert response(Page(200, "läuft\n"), Asked("/", is_head=True)) == head + b"\r\n\r\n"


# On sockets


def with_server(talk: Callable[[int], Awaitable[None]]) -> None:
    async def page(path: str) -> Page:
        if path == "/bug":
            raise ValueError("planted")
        return Page(200, f"you asked for {path}\n")

    async def run() -> None:
        server = PageServer(RealHost(asyncio.get_running_loop()), page)
        port = await server.listen("localhost", 0)
        try:
            async with asyncio.timeout(30):
                await talk(port)
        finally:
            server.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())


async def read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = int(head.partition("Content-Length: ")[2].split("\r\n")[0])
    return int(head.split(" ")[1]), await reader.readexactly(length)


@pytest.mark.plants_traceback
def test_a_connection_is_kept_for_the_next_request() -> None:
    async def talk(port: int) -> None:
        for address in ("127.0.0.1", "::1"):
            try:
                reader, writer = await asyncio.open_connection(address, port)
            except OSError:
                assert address == "::1", "no IPv6 here"
                continue
            writer.write(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n")
            assert await read_response(reader) == (200, b"you asked for /a\n")
            assert await read_response(reader) == (200, b"you asked for /b\n")
            writer.write(b"GET /bug HTTP/1.1\r\n\r\n")
            assert (await read_response(reader))[0] == 500
            writer.write(b"POST / HTTP/1.1\r\n\r\n")
            assert (await read_response(reader))[0] == 405
            assert await reader.read() == b""
            writer.close()

    with_server(talk)


def test_there_are_not_too_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_CONNECTIONS", 2)

    async def talk(port: int) -> None:
        first = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for reader, writer in first:
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await read_response(reader)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        for _, one in (*first, (reader, writer)):
            one.close()

    with_server(talk)


def test_whoever_says_nothing_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "IDLE_SECONDS", 0.01)

    async def talk(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()

    with_server(talk)
