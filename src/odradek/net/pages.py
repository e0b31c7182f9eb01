"""A few pages over HTTP/1.1, for monitoring: GET and HEAD, nothing else.

`Exchange` is the protocol, without a socket: bytes in, requests out. A request with a body, a head that is too long or
not HTTP at all gets one response, and the connection is closed. `serve` puts it on sockets of the event loop. A client
may be idle for `IDLE_SECONDS` between requests, and there are at most `MAX_CONNECTIONS` at a time: a misbehaving
scraper must not use up the resources of clients.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, cast

from odradek.host.interface import SocketHost, Timer
from odradek.net.server import bind

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 8 * 1024
MAX_CONNECTIONS = 32
IDLE_SECONDS = 75.0
END_OF_HEAD = b"\r\n\r\n"
REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
TEXT = "text/plain; charset=utf-8"


class Page(NamedTuple):
    status: int
    text: str
    content_type: str = TEXT


Pages = Callable[[str], Awaitable[Page]]  # by the path that was asked for


class Asked(NamedTuple):
    path: str
    is_head: bool = False
    refusal: Page | None = None  # instead of the page
    is_last: bool = False  # the connection is closed after the response


class Exchange:
    """The bytes that arrive on one connection."""

    def __init__(self) -> None:
        self._received = bytearray()

    def receive(self, data: bytes) -> None:
        self._received += data

    def next_request(self) -> Asked | None:
        """None until more has arrived."""
        end = self._received.find(END_OF_HEAD)
        if end < 0:
            return _refused(431) if len(self._received) > MAX_HEAD_BYTES else None
        if end > MAX_HEAD_BYTES:
            return _refused(431)
        head = bytes(self._received[:end]).decode("latin-1")
        del self._received[: end + len(END_OF_HEAD)]
        return _read_head(head)


def _refused(status: int) -> Asked:
    return Asked("", refusal=Page(status, REASONS[status] + "\n"), is_last=True)


def _read_head(head: str) -> Asked:
    first, *lines = head.split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return _refused(400)
    method, target, version = words
    headers = {name.strip().lower(): value.strip().lower() for name, _, value in map(_split_header, lines)}
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        return _refused(400)  # a body: where it ends is not our business
    if method not in ("GET", "HEAD"):
        return _refused(405)
    wants_close = headers.get("connection", "keep-alive" if version == "HTTP/1.1" else "close") == "close"
    return Asked(target.partition("?")[0], is_head=method == "HEAD", is_last=wants_close)


def _split_header(line: str) -> tuple[str, str, str]:
    return line.partition(":")


def response(page: Page, asked: Asked) -> bytes:
    body = page.text.encode()
    head = (
        f"HTTP/1.1 {page.status} {REASONS[page.status]}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"Connection: {'close' if asked.is_last else 'keep-alive'}\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if asked.is_head else body)


class Connection(asyncio.Protocol):
    """One at a time: the next request is looked at when the response to the one before has been given."""

    def __init__(self, server: "PageServer") -> None:
        self._server = server
        self._exchange = Exchange()
        self._transport: asyncio.Transport | None = None
        self._answering: asyncio.Task[None] | None = None
        self._is_paused = False
        self._idle: Timer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by name
        if not self._server.admit(self):
            self._transport.abort()
            return
        self._wait()

    def _wait(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self._server.host.call_later(IDLE_SECONDS, self.close)

    def data_received(self, data: bytes) -> None:
        self._exchange.receive(data)
        if self._answering is None:
            self._answering = self._server.host.create_task(self._answer())
        elif self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    async def _answer(self) -> None:
        try:
            while (asked := self._exchange.next_request()) is not None and self._transport is not None:
                page = asked.refusal or await self._server.page(asked.path)
                if self._transport is None:
                    return
                self._transport.write(response(page, asked))
                self._wait()
                if asked.is_last:
                    self._transport.close()
                    return
        finally:
            self._answering = None
        if self._transport is not None and self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._idle is not None:
            self._idle.cancel()
        self._server.lost(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class PageServer:
    def __init__(self, host: SocketHost, pages: Pages) -> None:
        self.host = host
        self._pages = pages
        self._connections: dict[Connection, None] = {}
        self._servers: list[asyncio.AbstractServer] = []

    async def listen(self, host: str, port: int) -> int:
        """Bind and accept; returns the port. Raises OSError."""
        sockets = bind(host, port)
        for sock in sockets:
            self._servers.append(await self.host.loop.create_server(lambda: Connection(self), sock=sock))
        return int(sockets[0].getsockname()[1])

    def admit(self, connection: Connection) -> bool:
        if len(self._connections) >= MAX_CONNECTIONS:
            return False
        self._connections[connection] = None
        return True

    def lost(self, connection: Connection) -> None:
        self._connections.pop(connection, None)

    async def page(self, path: str) -> Page:
        try:
            return await self._pages(path)
        except Exception:
            log.exception("the page %s failed: this is a bug", path)
            return Page(500, "failed, see the log\n")

    def close(self) -> None:
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.close()
