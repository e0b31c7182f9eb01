"""The sockets that clients connect to, and the connections they make.

`localhost` means IPv4 and IPv6 alike, on one port: clients try either first. Port 0 lets the system choose.
"""

import errno
import logging
import math
import socket
import sys
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.config.listeners import SecurityProtocol
from odradek.host.interface import SocketHost, Timer
from odradek.host.metrics import Traffic
from odradek.net.bounds import Bounds
from odradek.net.greeting import Greetings
from odradek.net.pool import Pool
from odradek.net.security import PLAINTEXT, Security
from odradek.net.stream import Connected, StreamTransport
from odradek.net.transport import Converse
from odradek.net.transports import new_transport

if TYPE_CHECKING:
    from odradek.net.address_rates import AddressRates

log = logging.getLogger(__name__)

BACKLOG = 1024
ACCEPTED_IN_A_TURN = 64  # many new clients at once must not keep the event loop from connected ones
ACCEPT_PAUSE_SECONDS = 0.2
BIND_ATTEMPTS = 20
REFUSALS_PER_LINE_SECONDS = 10.0
MOST_HELD = 1_000  # connections over their address's quota, before they are closed


class Rate:
    """Lets this many through per second; unused ones are saved for one second at most."""

    def __init__(self, now: Callable[[], float], per_second: float) -> None:
        self._now = now
        self.per_second = per_second
        self._left = per_second
        self._at = now()

    def wait_seconds(self) -> float:
        """Return how long to wait until the next is allowed; 0 lets it through."""
        if self.per_second == math.inf:
            return 0.0
        now = self._now()
        self._left = min(self._left + (now - self._at) * self.per_second, max(self.per_second, 1.0))
        self._at = now
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / self.per_second if self.per_second else 1.0


class Server:
    """Accepts connections, and lets `converse` begin a conversation on each."""

    def __init__(
        self, host: SocketHost, converse: Converse, bounds: Bounds, max_sockets: int = sys.maxsize
    ) -> None:
        """`max_sockets` is what the limit of open files leaves for connections."""
        self._host = host
        self._loop = host.loop
        self._max_sockets = max_sockets
        self._converse = converse
        self.pool = Pool(host, bounds.max_frame_size, bounds.max_request_memory)
        self._bounds = bounds
        self._listeners: list[socket.socket] = []
        self._connections: dict[StreamTransport, None] = {}
        self._per_address: Counter[str] = Counter()
        self._idle_check: Timer | None = None
        self._new_connections = Rate(host.monotonic, bounds.max_new_connections_per_second)
        self._per_listener: Counter[str] = Counter()
        self._new_of_listener = {
            name: Rate(host.monotonic, own.max_new_connections_per_second)
            for name, own in bounds.of_listener.items()
        }
        self._greetings = Greetings(host.monotonic, host.call_later, self._maybe_accept_again)
        self._securities: dict[str, Security] = {}  # by listener name
        # Listeners, and their names, that wait for a connection to close or to be greeted.
        self._full: dict[socket.socket, str] = {}
        self._paused: set[socket.socket] = set()  # listeners that could not accept when they last tried
        self._address_rates: AddressRates | None = None  # while a quota limits new connections
        self._held: dict[socket.socket, Timer] = {}  # over that quota
        self._limit_addresses(bounds)
        self._refusals = 0  # since the last log line about them
        self._refusal_logged = -REFUSALS_PER_LINE_SECONDS

    def reconfigure(self, bounds: Bounds) -> None:
        """Change how many connections there may be; the other bounds are read at start. Those over the new limit are
        closed, idle ones first.
        """
        self._bounds = bounds
        self._new_connections.per_second = bounds.max_new_connections_per_second
        for name, own in bounds.of_listener.items():
            self._new_of_listener[name].per_second = own.max_new_connections_per_second
        self._limit_addresses(bounds)
        excess = len(self._connections) - bounds.max_connections
        if excess > 0:
            for connection in sorted(self._connections, key=lambda c: (c.is_busy, c.last_active))[:excess]:
                connection.close(f"max.connections is {bounds.max_connections} now")
        self._maybe_accept_again()

    def _limit_addresses(self, bounds: Bounds) -> None:
        if not bounds.new_connections_of_address:
            self._address_rates = None
        elif self._address_rates is not None:
            self._address_rates.limits = bounds.new_connections_of_address
        else:
            from odradek.net.address_rates import AddressRates  # for those who have such a quota

            self._address_rates = AddressRates(
                bounds.new_connections_of_address, bounds.rate_windows, bounds.rate_window_ms
            )

    @property
    def traffic(self) -> Traffic:
        return self.pool.traffic

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    # --- listening ---

    def listen(self, name: str, host: str, port: int, security: Security = PLAINTEXT) -> int:
        """Bind and accept; returns the port."""
        listeners = bind(host, port)
        self._securities[name] = security
        for listener in listeners:
            self._loop.add_reader(listener.fileno(), self._accept, listener, name)
        self._listeners += listeners
        if self._idle_check is None:
            self._schedule_idle_check()
        return int(listeners[0].getsockname()[1])

    def _accept(self, listener: socket.socket, name: str) -> None:
        for _ in range(ACCEPTED_IN_A_TURN):
            if self._must_wait(listener, name):
                return
            try:
                sock, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause_accepting(listener, name, error)
                return
            if listener in self._paused:
                self._paused.remove(listener)
                log.info("listener %s accepts connections again", name)
            self._welcome(sock, address, name)

    def _must_wait(self, listener: socket.socket, name: str) -> bool:
        """Over `max.connections` or `max.connection.creation.rate` clients wait in the backlog."""
        if self._is_full(name):
            self._log_full(name)
            self._loop.remove_reader(listener.fileno())
            self._full[listener] = name
            return True
        own = self._new_of_listener.get(name)
        seconds = (own.wait_seconds() if own else 0.0) or self._new_connections.wait_seconds()
        if seconds:
            self._loop.remove_reader(listener.fileno())
            self._host.call_later(seconds, self._resume_accepting, listener, name)
        return seconds > 0

    def _is_full(self, name: str) -> bool:
        own = self._bounds.of_listener.get(name)
        return (
            len(self._connections) >= self._bounds.max_connections
            or (own is not None and self._per_listener[name] >= own.max_connections)
            or self._must_greet(name)
        )

    def _must_greet(self, name: str) -> bool:
        """True if its clients have to be greeted, and too many are at it already."""
        is_greeted = self._securities[name].protocol is not SecurityProtocol.PLAINTEXT
        return is_greeted and self._greetings.is_full(name)

    def _log_full(self, name: str) -> None:
        if self._must_greet(name):
            log.info("listener %s: too many clients connect at once, further ones wait", name)
            return
        log.warning(
            "listener %s: max.connections reached, further clients wait until a connection closes", name
        )

    def _maybe_accept_again(self) -> None:
        for listener, name in list(self._full.items()):
            if not self._is_full(name):
                del self._full[listener]
                self._resume_accepting(listener, name)

    def _pause_accepting(self, listener: socket.socket, name: str, error: OSError) -> None:
        """Probably out of descriptors: the waiting client stays in the backlog until some are free."""
        if listener not in self._paused:
            self._paused.add(listener)
            log.error(
                "listener %s cannot accept a connection, trying again every %g s: %s",
                name,
                ACCEPT_PAUSE_SECONDS,
                error,
            )
        self._loop.remove_reader(listener.fileno())
        self._host.call_later(ACCEPT_PAUSE_SECONDS, self._resume_accepting, listener, name)

    def _resume_accepting(self, listener: socket.socket, name: str) -> None:
        if listener in self._listeners:
            self._loop.add_reader(listener.fileno(), self._accept, listener, name)

    def _welcome(self, sock: socket.socket, address: Any, listener: str) -> None:
        host, port = address[0], address[1]
        if self._address_rates is not None:
            throttle_ms = self._address_rates.throttle_ms(host, int(self._host.monotonic() * 1000))
            if throttle_ms:
                self._hold(sock, f"{host}:{port}", throttle_ms / 1000)
                return
        if refusal := self._refusal(host):
            self._log_refusal(f"{host}:{port}", refusal)
            sock.close()
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._set_buffers(sock)
            connected = Connected(sock, f"{host}:{port}", listener, self._securities[listener])
            connection = new_transport(self.pool, connected, self._converse, self)
        except OSError as error:
            log.warning("connection from %s:%d lost before it was set up: %s", host, port, error)
            sock.close()
            return
        log.debug("accepted %s on listener %s", connection.address, listener)
        self._per_address[host] += 1
        self._per_listener[listener] += 1
        self._connections[connection] = None
        if connection.is_greeting:
            self._greetings.begin(connection)

    def _hold(self, sock: socket.socket, address: str, seconds: float) -> None:
        """It comes too soon after others of its address: it is not served, and closed after a while."""
        self._log_refusal(address, "connection_creation_rate of its address exceeded")
        self.pool.traffic.throttled_connections += 1
        if len(self._held) >= MOST_HELD:
            sock.close()
            return
        self._held[sock] = self._host.call_later(seconds, self._let_go, sock)

    def _let_go(self, sock: socket.socket) -> None:
        del self._held[sock]
        sock.close()

    def _log_refusal(self, address: str, reason: str) -> None:
        """Refused clients try again at once: one line stands for many."""
        self._refusals += 1
        now = self._host.monotonic()
        if now - self._refusal_logged >= REFUSALS_PER_LINE_SECONDS:
            log.warning(
                "connection from %s refused: %s (%d refused since the last such line)",
                address,
                reason,
                self._refusals,
            )
            self._refusals, self._refusal_logged = 0, now

    def _refusal(self, host: str) -> str:
        if len(self._connections) >= self._max_sockets:
            return (
                f"the limit of open files leaves room for {self._max_sockets} connections, "
                "raise it (ulimit -n)"
            )
        most = self._bounds.max_connections_of_address.get(host, self._bounds.max_connections_per_address)
        if self._per_address[host] >= most:
            return f"max.connections.per.ip ({most}) reached"
        return ""

    def _set_buffers(self, sock: socket.socket) -> None:
        if self._bounds.socket_send_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._bounds.socket_send_buffer)
        if self._bounds.socket_receive_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._bounds.socket_receive_buffer)

    def greeted(self, connection: StreamTransport) -> None:
        self._greetings.end(connection)

    def closed(self, connection: StreamTransport, reason: str) -> None:
        self._greetings.end(connection)
        self._connections.pop(connection, None)
        self._per_listener[connection.listener] -= 1
        host = connection.address.rpartition(":")[0]
        self._per_address[host] -= 1
        if not self._per_address[host]:
            del self._per_address[host]
        self._maybe_accept_again()

    # --- idle connections ---

    def _schedule_idle_check(self) -> None:
        self._idle_check = self._host.call_later(self._bounds.max_idle_seconds / 4, self._close_idle)

    def _close_idle(self) -> None:
        limit = self._host.monotonic() - self._bounds.max_idle_seconds
        for connection in [c for c in self._connections if c.last_active < limit and not c.is_busy]:
            connection.close("idle for longer than connections.max.idle.ms", logging.INFO)
        self._schedule_idle_check()

    # --- the end ---

    def stop_listening(self) -> None:
        """Stop serving new and connected clients."""
        for listener in self._listeners:
            self._loop.remove_reader(listener.fileno())
            listener.close()
        self._listeners.clear()
        self._paused.clear()
        if self._idle_check is not None:
            self._idle_check.cancel()
        self._greetings.stop()
        for connection in list(self._connections):
            connection.stop_reading()

    def flush_connections(self) -> None:
        """Send the responses that are ready, as far as the sockets accept them at once."""
        for connection in list(self._connections):
            connection.flush()

    def close_connections(self) -> None:
        for sock, timer in self._held.items():
            timer.cancel()
            sock.close()
        self._held.clear()
        for connection in list(self._connections):
            connection.close("the broker is stopping", logging.DEBUG)


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
