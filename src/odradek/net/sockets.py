"""The real network: TCP, and what protects it."""

import asyncio
import logging
import socket
import sys
from typing import TYPE_CHECKING

from odradek.host.interface import SocketHost
from odradek.host.metrics import Traffic
from odradek.net.bounds import Bounds
from odradek.net.channel import Channel
from odradek.net.greeting import GREETING_SECONDS, Handshakes, greeted
from odradek.net.pool import Pool
from odradek.net.security import Endpoint
from odradek.net.server import Server
from odradek.net.stream import Connected, StreamTransport
from odradek.net.transport import Converse, Transport
from odradek.net.transports import new_transport

if TYPE_CHECKING:
    from odradek.net.pages import Pages, PageServer

MAX_RESPONSE_SIZE = (1 << 31) - 1
MAX_RESPONSE_MEMORY = 256 << 20  # of responses that are arriving


class SocketNetwork:
    def __init__(self, host: SocketHost, max_sockets: int = sys.maxsize) -> None:
        """`max_sockets`: how many incoming connections are allowed."""
        self._host = host
        self._max_sockets = max_sockets
        self._pool = Pool(host, MAX_RESPONSE_SIZE, MAX_RESPONSE_MEMORY)
        self._connected: dict[StreamTransport, None] = {}
        self._handshakes = Handshakes()
        self._page_servers: list[PageServer] = []

    @property
    def traffic(self) -> Traffic:
        return self._pool.traffic

    def serve(self, converse: Converse, bounds: Bounds) -> Server:
        return Server(self._host, converse, bounds, self._max_sockets)

    async def connect(self, endpoint: Endpoint, timeout_seconds: float) -> Channel:
        async with asyncio.timeout(timeout_seconds):
            sock = await self._reach(endpoint.host, endpoint.port)
        if endpoint.security.is_open:
            return await self._begin(sock, endpoint)
        async with asyncio.timeout(GREETING_SECONDS):
            return await greeted(await self._begin(sock, endpoint), endpoint.security.greet)

    async def _reach(self, host: str, port: int) -> socket.socket:
        """Each address that the name has is tried, in the order in which the system has them."""
        found = await self._host.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        failure: OSError = ConnectionError(f"{host} has no address")
        for family, kind, protocol, _, address in found:
            try:
                return await self._open(family, kind, protocol, address)
            except OSError as error:
                failure = error
        raise failure

    async def _open(
        self, family: int, kind: int, protocol: int, address: tuple[object, ...]
    ) -> socket.socket:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await self._host.loop.sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        return sock

    async def _begin(self, sock: socket.socket, endpoint: Endpoint) -> Channel:
        channels: list[Channel] = []

        def converse(transport: Transport) -> Channel:
            channels.append(Channel(transport))
            return channels[0]

        connected = Connected(sock, str(endpoint), "", endpoint.security)
        try:
            transport = new_transport(self._pool, connected, self._watched(converse), self)
        except BaseException:
            sock.close()
            raise
        self._connected[transport] = None
        await self._handshakes.finish(transport)
        return channels[0]

    def _watched(self, converse: Converse) -> Converse:
        """Return it unchanged; those who put something between a transport and its receiver override this."""
        return converse

    def greeted(self, transport: StreamTransport) -> None:
        self._handshakes.greeted(transport)

    def closed(self, transport: StreamTransport, reason: str) -> None:
        self._connected.pop(transport, None)
        self._handshakes.closed(transport, reason)

    async def serve_pages(self, host: str, port: int, pages: "Pages") -> int:
        from odradek.net.pages import PageServer

        server = PageServer(self._host, pages)
        self._page_servers.append(server)
        return await server.listen(host, port)

    def close(self) -> None:
        for server in self._page_servers:
            server.close()
        for transport in list(self._connected):
            transport.close("this node is stopping", logging.DEBUG)
