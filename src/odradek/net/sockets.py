"""The real network: TCP."""

import asyncio
import logging
import socket
import sys
from typing import TYPE_CHECKING

from odradek.host.interface import SocketHost
from odradek.host.metrics import Traffic
from odradek.net.bounds import Bounds
from odradek.net.channel import Channel
from odradek.net.plaintext import PlaintextTransport
from odradek.net.pool import Pool
from odradek.net.server import Server
from odradek.net.transport import Converse, Receiver

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
        self._connected: dict[PlaintextTransport, None] = {}
        self._page_servers: list[PageServer] = []

    @property
    def traffic(self) -> Traffic:
        return self._pool.traffic

    def serve(self, converse: Converse, bounds: Bounds) -> Server:
        return Server(self._host, converse, bounds, self._max_sockets)

    async def connect(self, host: str, port: int, timeout_seconds: float) -> Channel:
        """Each address that the name has is tried, in the order in which the system has them."""
        async with asyncio.timeout(timeout_seconds):
            found = await self._host.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            failure: OSError = ConnectionError(f"{host} has no address")
            for family, kind, protocol, _, address in found:
                try:
                    sock = await self._open(family, kind, protocol, address)
                except OSError as error:
                    failure = error
                else:
                    return self._begin(sock, f"{host}:{port}")
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

    def _begin(self, sock: socket.socket, address: str) -> Channel:
        channel = self._talk(sock, address, Channel)
        assert isinstance(channel, Channel)
        return channel

    def _talk(self, sock: socket.socket, address: str, converse: Converse) -> Receiver:
        transport = PlaintextTransport(self._pool, sock, address, "", converse, self._closed)
        self._connected[transport] = None
        return transport.receiver

    def _closed(self, transport: PlaintextTransport) -> None:
        self._connected.pop(transport, None)

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
