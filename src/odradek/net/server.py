"""The sockets that clients connect to, and the connections they make.

`localhost` means IPv4 and IPv6 alike, on one port: clients try either first. Port 0 lets the system choose.
"""

import asyncio
import errno
import logging
import socket
import time
from collections import Counter
from collections.abc import Awaitable
from typing import Any, NamedTuple, Protocol

from odradek.api.request import Request
from odradek.api.turns import Turns
from odradek.net.connection import Connection
from odradek.net.memory import RequestMemory

log = logging.getLogger(__name__)

RECEIVE_BUFFER_SIZE = 256 * 1024
BACKLOG = 1024
ACCEPT_PAUSE_SECONDS = 0.2
LATE_CHECK_SECONDS = 0.5
BIND_ATTEMPTS = 20


class Dispatcher(Protocol):
    """Handles the requests of all connections."""

    turns: Turns

    def dispatch(self, request: Request, frame: memoryview, body: int) -> Awaitable[None] | None:
        """An awaitable is what is left to be done before the connection's next request may be handled."""

    def finish(self) -> Awaitable[None] | None:
        """Let go of all frames: their memory is about to be used again. Answers the same as `dispatch`."""

    def keeps(self, api_key: int, size: int) -> bool:
        """Whether a frame of this size has to stay as it is until what `dispatch` answered has been awaited."""


class Bounds(NamedTuple):
    max_frame_size: int  # socket.request.max.bytes
    max_request_memory: int  # queued.max.request.bytes
    max_connections: int
    max_connections_per_address: int
    max_idle_seconds: float  # connections.max.idle.ms
    socket_send_buffer: int  # -1: the system's own
    socket_receive_buffer: int


class Server:
    """Accepts connections, and hands their requests to the dispatcher."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dispatcher: Dispatcher, bounds: Bounds) -> None:
        self.loop = loop
        self.dispatcher = dispatcher
        self.memory = RequestMemory(bounds.max_request_memory)
        self.waiting_in_all = 0  # requests of all connections that are not answered yet
        self.max_frame_size = bounds.max_frame_size
        self.spare_frame = memoryview(b"")  # of a frame that was handled, for the next one
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_SIZE))
        self._bounds = bounds
        self._listeners: list[socket.socket] = []
        self._connections: set[Connection] = set()
        self._per_address: Counter[str] = Counter()
        self._idle_check: asyncio.TimerHandle | None = None
        self._late_check: asyncio.TimerHandle | None = None

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    # --- listening ---

    def listen(self, name: str, host: str, port: int) -> int:
        """Bind and accept; answers the port."""
        listeners = bind(host, port)
        for listener in listeners:
            self.loop.add_reader(listener.fileno(), self._accept, listener, name)
        self._listeners += listeners
        if self._idle_check is None:
            self._schedule_idle_check()
        return int(listeners[0].getsockname()[1])

    def _accept(self, listener: socket.socket, name: str) -> None:
        for _ in range(BACKLOG):
            try:
                sock, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause_accepting(listener, name, error)
                return
            self._welcome(sock, address, name)

    def _pause_accepting(self, listener: socket.socket, name: str, error: OSError) -> None:
        """Out of descriptors, most likely: the waiting client stays in the backlog until some are free."""
        log.error("cannot accept a connection, trying again in %s s: %s", ACCEPT_PAUSE_SECONDS, error)
        self.loop.remove_reader(listener.fileno())
        self.loop.call_later(ACCEPT_PAUSE_SECONDS, self._resume_accepting, listener, name)

    def _resume_accepting(self, listener: socket.socket, name: str) -> None:
        if listener in self._listeners:
            self.loop.add_reader(listener.fileno(), self._accept, listener, name)

    def _welcome(self, sock: socket.socket, address: Any, listener: str) -> None:
        host, port = address[0], address[1]
        if refusal := self._refusal(host):
            log.warning("connection from %s:%d refused: %s", host, port, refusal)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._set_buffers(sock)
        self._per_address[host] += 1
        self._connections.add(Connection(self, sock, f"{host}:{port}", listener))

    def _refusal(self, host: str) -> str:
        if len(self._connections) >= self._bounds.max_connections:
            return f"max.connections ({self._bounds.max_connections}) reached"
        if self._per_address[host] >= self._bounds.max_connections_per_address:
            return f"max.connections.per.ip ({self._bounds.max_connections_per_address}) reached"
        return ""

    def _set_buffers(self, sock: socket.socket) -> None:
        if self._bounds.socket_send_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._bounds.socket_send_buffer)
        if self._bounds.socket_receive_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._bounds.socket_receive_buffer)

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        host = connection.address.rpartition(":")[0]
        self._per_address[host] -= 1
        if not self._per_address[host]:
            del self._per_address[host]

    # --- idle connections ---

    def _schedule_idle_check(self) -> None:
        self._idle_check = self.loop.call_later(self._bounds.max_idle_seconds / 4, self._close_idle)

    def _close_idle(self) -> None:
        limit = time.monotonic() - self._bounds.max_idle_seconds
        for connection in [c for c in self._connections if c.last_active < limit and not c.is_busy]:
            connection.close("idle for longer than connections.max.idle.ms", logging.INFO)
        self._schedule_idle_check()

    # --- frames that do not arrive ---

    def starved(self) -> None:
        """A connection waits for memory: those that hold some had better use it."""
        if self._late_check is None:
            self._late_check = self.loop.call_later(LATE_CHECK_SECONDS, self.close_late)

    def close_late(self) -> None:
        """Those whose request began to arrive first, and does not go on, give way to those that wait."""
        self._late_check = None
        now = time.monotonic()
        for connection in list(self.memory.arriving):
            assert isinstance(connection, Connection)
            if self.memory.is_exhausted and connection.is_late(now):
                connection.close("its request does not arrive, and others wait for the memory")
        if self.memory.is_waited_for:
            self.starved()

    # --- the end ---

    def stop_listening(self) -> None:
        """Neither to new clients nor to those that are connected."""
        for listener in self._listeners:
            self.loop.remove_reader(listener.fileno())
            listener.close()
        self._listeners.clear()
        if self._idle_check is not None:
            self._idle_check.cancel()
        for connection in self._connections:
            connection.stop_reading()

    def flush_connections(self) -> None:
        """Send what has been answered, as far as the sockets take it at once."""
        for connection in list(self._connections):
            connection.flush()

    def close_connections(self) -> None:
        for connection in list(self._connections):
            connection.close("the broker stops", logging.DEBUG)


def bind(host: str, port: int) -> list[socket.socket]:
    """Listening sockets on every address that `host` means, all on the same port."""
    for _ in range(BIND_ATTEMPTS):
        try:
            return _bind_all(host, port)
        except OSError as error:
            if port != 0 or error.errno != errno.EADDRINUSE:
                raise  # else the port that the system chose for IPv4 is taken on IPv6: choose again
    raise OSError(errno.EADDRINUSE, f"no port is free on every address of {host}")


def _bind_all(host: str, port: int) -> list[socket.socket]:
    listeners: list[socket.socket] = []
    try:
        for family, address in _addresses(host):
            listener = socket.create_server((address, port), family=family, backlog=BACKLOG)
            listener.setblocking(False)
            listeners.append(listener)
            port = listener.getsockname()[1]
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _addresses(host: str) -> list[tuple[socket.AddressFamily, str]]:
    if host == "localhost":
        addresses = [(socket.AF_INET, "127.0.0.1")]
        if _has_ipv6():
            addresses.append((socket.AF_INET6, "::1"))
        return addresses
    if not host:
        host = "0.0.0.0"
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    return [(family, str(address[0]))]


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False
