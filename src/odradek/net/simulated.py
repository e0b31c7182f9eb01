"""A network in one thread, on virtual time: every delay, cut and loss comes from a seed.

It behaves like TCP. Data sent from one end of a connection arrives at the other in the same order, or a beginning of it
does and the connection is lost; nothing is missing in the middle. Different connections do not delay each other's
frames, so data sent on one may arrive before data sent earlier on another.

A cut stops one direction between two places. Data under way waits, and arrives after the cut has healed; an end that
waits too long for that gives up, and only that end is closed. The other end does not notice until it sends something to
the closed end. A place that crashed does not respond while it is down, and sends a reset once it is back.

Data that arrives at a place is handled in the place's own context, whoever sent it, so that the log lines of a node
have its id, and nothing runs on a host whose power is cut.

A connection with TLS has a simulated handshake, and its bytes arrive in pieces: see `net.simulated_greeting`.

Frames above `SMALL_FRAME` arrive in their own memory, as they do from a socket. Small ones that arrive together are
passed on together, and their memory is overwritten afterwards: a receiver that keeps a view of one is caught.
"""

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context, copy_context
from random import Random

from odradek.host.metrics import Traffic
from odradek.net.bounds import Bounds
from odradek.net.channel import Channel
from odradek.net.greeting import GREETING_SECONDS, Greetings, Handshakes, greeted
from odradek.net.pages import Pages
from odradek.net.security import PLAINTEXT, Endpoint, Security
from odradek.net.simulated_greeting import NO_FAULTS, AcceptedTransport, GreetingFaults, OpenedTransport
from odradek.net.simulated_wire import Pipe, SimulatedOwner, SimulatedTransport
from odradek.net.transport import Converse, Receiver

MAX_DELAY_SECONDS = 0.005
FIRST_PORT = 10_000
MIN_FORGET_AT = 100  # connections; closed ones are forgotten now and then
EVERY_ADDRESS = ("", "0.0.0.0", "::", "localhost")


class SimulatedNetwork:
    """All places, and what is between them."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, rng: Random, max_delay_seconds: float = MAX_DELAY_SECONDS
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.max_delay_seconds = max_delay_seconds
        self.greeting_faults: GreetingFaults = NO_FAULTS
        self.listeners: dict[tuple[str, int], tuple[SimulatedServer, str, Security]] = {}
        self._places: dict[str, Place] = {}
        self._cuts: dict[tuple[str, str], None] = {}
        self._paused: dict[str, None] = {}
        self._stalled: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self._links: dict[Link, None] = {}
        self._forget_at = MIN_FORGET_AT
        self._next_port = FIRST_PORT
        self.reached: dict[
            str, None
        ] = {}  # places that something has arrived at, until somebody empties this
        self.context = copy_context()  # of no node

    def place(self, name: str, context: Context | None = None) -> "Place":
        """The network as the node of this name sees it; others connect to it by this name. Data that arrives there is
        handled in `context`."""
        if name not in self._places:
            self._places[name] = Place(self, name)
        if context is not None:
            self._places[name].context = context
        return self._places[name]

    def at(self, name: str, work: Callable[..., None], *arguments: object) -> None:
        """Run this in the context of that place."""
        context = self.place(name).context
        self.reached[name] = None
        if context is None:
            work(*arguments)
        else:
            context.run(work, *arguments)

    @property
    def connection_count(self) -> int:
        """Counts those of which one end or both are still open."""
        return sum(not link.is_over for link in self._links)

    # --- faults ---

    def cut(self, source: str, target: str) -> None:
        """No more data gets from the one to the other; the way back does not change."""
        self._cuts[source, target] = None

    def cut_both_ways(self, one: str, other: str) -> None:
        self.cut(one, other)
        self.cut(other, one)

    def pause(self, name: str) -> None:
        """Nothing arrives there until `resume`: the place is paused."""
        self._paused[name] = None

    def resume(self, name: str) -> None:
        self._paused.pop(name, None)
        for source, target in list(self._stalled):
            if target == name:
                self._go_on(source, target)

    def heal(self, source: str, target: str) -> None:
        self._cuts.pop((source, target), None)
        self._go_on(source, target)

    def heal_both_ways(self, one: str, other: str) -> None:
        self.heal(one, other)
        self.heal(other, one)

    def heal_all(self) -> None:
        for source, target in list(self._cuts):
            self.heal(source, target)

    def drop_connections(self, one: str, other: str) -> int:
        """Lose every connection between the two; each end notices after a part of the data under way. Returns how many
        there were."""
        dropped = [link for link in self._links if link.is_between(one, other) and not link.is_over]
        for link in dropped:
            link.drop()
        return len(dropped)

    def crash(self, name: str) -> None:
        """The place is gone at once, without closing anything. `restart` brings it back, empty."""
        self.place(name).is_up = False
        self._places[name] = Place(self, name, is_up=False)
        for address in [address for address in self.listeners if address[0] == name]:
            del self.listeners[address]
        for link in list(self._links):
            link.forget(name)

    def restart(self, name: str) -> None:
        self.place(name).is_up = True
        self.resume(name)

    # --- for places and links ---

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts or target in self._paused or not self.place(target).is_up

    def delay(self) -> float:
        return self.rng.random() * self.max_delay_seconds

    def _later(self, work: Callable[[], None]) -> None:
        self.loop.call_later(self.delay(), work, context=self.context)

    def carry(self, source: str, target: str, work: Callable[[], None]) -> None:
        """Do this at the target after a delay, or after the cut between them has healed."""

        def arrive() -> None:
            if self.is_cut(source, target):
                self.stall(source, target, arrive)
            else:
                work()

        self._later(arrive)

    def stall(self, source: str, target: str, go_on: Callable[[], None]) -> None:
        self._stalled.setdefault((source, target), []).append(go_on)

    def _go_on(self, source: str, target: str) -> None:
        for go_on in self._stalled.pop((source, target), []):
            self._later(go_on)

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def opened(self, link: "Link") -> None:
        if len(self._links) >= self._forget_at:
            self._links = {link: None for link in self._links if not link.is_over}
            self._forget_at = max(2 * len(self._links), MIN_FORGET_AT)
        self._links[link] = None


class Place:
    """One node's network."""

    def __init__(self, network: SimulatedNetwork, name: str, is_up: bool = True) -> None:
        self._network = network
        self.name = name
        self.is_up = is_up
        self.context: Context | None = None  # None: that of the sender
        self._connected: dict[SimulatedTransport, None] = {}
        self._handshakes = Handshakes()
        self.traffic = Traffic()  # not counted here
        self.pages: Pages | None = None  # for tests to ask: there is no HTTP here

    async def serve_pages(self, host: str, port: int, pages: Pages) -> int:
        self.check_up()
        self.pages = pages
        return port or self._network.free_port()

    def serve(self, converse: Converse, bounds: Bounds) -> "SimulatedServer":
        return SimulatedServer(self._network, self, converse)

    async def connect(self, endpoint: Endpoint, timeout_seconds: float) -> Channel:
        link = await self._reach(endpoint.host, endpoint.port, timeout_seconds)
        if endpoint.security.is_open:
            return await self._begin(link, endpoint)
        async with asyncio.timeout(GREETING_SECONDS):
            return await greeted(await self._begin(link, endpoint), endpoint.security.greet)

    async def converse(self, endpoint: Endpoint, timeout_seconds: float, converse: Converse) -> Receiver:
        """A connection whose frames go to a receiver of the caller's choice, which is returned."""
        link = await self._reach(endpoint.host, endpoint.port, timeout_seconds)
        return await self._talk(link, endpoint, converse)

    async def _reach(self, host: str, port: int, timeout_seconds: float) -> "Link":
        self.check_up()
        target = self.name if host in EVERY_ADDRESS else host
        link = Link(self._network, self.name, target, port)
        async with asyncio.timeout(timeout_seconds):
            await link.connected
        return link

    async def _begin(self, link: "Link", endpoint: Endpoint) -> Channel:
        channel = await self._talk(link, endpoint, Channel)
        assert isinstance(channel, Channel)
        return channel

    async def _talk(self, link: "Link", endpoint: Endpoint, converse: Converse) -> Receiver:
        transport = link.open(str(endpoint), endpoint.security, converse, self)
        self._connected[transport] = None
        await self._handshakes.finish(transport)
        return transport.receiver

    def check_up(self) -> None:
        if not self.is_up:
            raise OSError(f"{self.name} has crashed")

    def greeted(self, transport: SimulatedTransport) -> None:
        self._handshakes.greeted(transport)

    def closed(self, transport: SimulatedTransport, reason: str) -> None:
        self._connected.pop(transport, None)
        self._handshakes.closed(transport, reason)

    def close(self) -> None:
        for transport in list(self._connected):
            transport.close("this node is stopping", logging.DEBUG)


class SimulatedServer:
    """Accepts every connection: limits on their number are a matter of sockets and descriptors."""

    def __init__(self, network: SimulatedNetwork, place: Place, converse: Converse) -> None:
        self._network = network
        self._place = place
        self._converse = converse
        self.traffic = Traffic()
        self._addresses: list[tuple[str, int]] = []
        self._greetings = Greetings(network.loop.time, network.loop.call_later, lambda: None)
        self._connections: dict[SimulatedTransport, None] = {}

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def listen(self, name: str, host: str, port: int, security: Security = PLAINTEXT) -> int:
        self._place.check_up()
        address = (self._place.name, port or self._network.free_port())
        if address in self._network.listeners:
            raise OSError(f"{address[0]}:{address[1]} is in use")
        self._network.listeners[address] = (self, name, security)
        self._addresses.append(address)
        return address[1]

    def accept(self, link: "Link", listener: str, security: Security) -> None:
        address = f"{link.client_name}:{self._network.free_port()}"
        transport = link.accept(address, listener, security, self._converse, self)
        self._connections[transport] = None
        if transport.is_greeting:
            self._greetings.begin(transport)

    def greeted(self, transport: SimulatedTransport) -> None:
        self._greetings.end(transport)

    def closed(self, transport: SimulatedTransport, reason: str) -> None:
        self._greetings.end(transport)
        self._connections.pop(transport, None)

    def reconfigure(self, bounds: Bounds) -> None:
        pass

    def stop_listening(self) -> None:
        for address in self._addresses:
            self._network.listeners.pop(address, None)
        self._addresses.clear()
        self._greetings.stop()
        for transport in list(self._connections):
            transport.stop_reading()

    def flush_connections(self) -> None:
        for transport in list(self._connections):
            transport.flush()

    def close_connections(self) -> None:
        for transport in list(self._connections):
            transport.close("the broker is stopping", logging.DEBUG)


class Link:
    """A connection: two pipes, and how it came about."""

    def __init__(self, network: SimulatedNetwork, client_name: str, server_name: str, port: int) -> None:
        self._network = network
        self.client_name, self.server_name = client_name, server_name
        self.to_server = Pipe(network, client_name, server_name)
        self.to_client = Pipe(network, server_name, client_name)
        self.connected: asyncio.Future[None] = network.loop.create_future()
        network.opened(self)
        network.carry(client_name, server_name, lambda: self._knock(port))

    def _knock(self, port: int) -> None:
        """At the server."""
        listener = self._network.listeners.get((self.server_name, port))
        if listener is not None:
            server, name, security = listener
            self._network.at(self.server_name, server.accept, self, name, security)
        self._network.carry(
            self.server_name, self.client_name, lambda: self._hear(is_accepted=listener is not None)
        )

    def open(
        self, address: str, security: Security, converse: Converse, owner: SimulatedOwner
    ) -> SimulatedTransport:
        """The client's end."""
        if not security.protocol.uses_tls:
            return SimulatedTransport(self.to_server, self.to_client, address, "", converse, owner)
        return OpenedTransport(
            self.to_server, self.to_client, address, "", converse, owner, self._network.greeting_faults
        )

    def accept(
        self, address: str, listener: str, security: Security, converse: Converse, owner: SimulatedOwner
    ) -> SimulatedTransport:
        """The server's end."""
        if not security.protocol.uses_tls:
            return SimulatedTransport(self.to_client, self.to_server, address, listener, converse, owner)
        return AcceptedTransport(
            self.to_client, self.to_server, address, listener, converse, owner, self._network.greeting_faults
        )

    def _hear(self, is_accepted: bool) -> None:
        """At the client."""
        if self.connected.done():  # the client has given up meanwhile
            self.to_server.end("reset by the peer")
        elif is_accepted:
            self.connected.set_result(None)
        else:
            self.connected.set_exception(ConnectionRefusedError(f"{self.server_name} refuses the connection"))

    @property
    def is_over(self) -> bool:
        ends = (self.to_server.sender, self.to_server.taker, self.to_client.sender, self.to_client.taker)
        return self.connected.done() and not any(ends)

    def is_between(self, one: str, other: str) -> bool:
        return (self.client_name, self.server_name) in ((one, other), (other, one))

    def drop(self) -> None:
        if not self.connected.done():
            self.connected.set_exception(ConnectionResetError(f"connection to {self.server_name} lost"))
        self.to_server.break_off()
        self.to_client.break_off()

    def forget(self, name: str) -> None:
        """This place is gone without closing the connection."""
        if name == self.client_name:
            self.connected.cancel()
            self._vanish(self.to_server)
        if name == self.server_name:
            self._vanish(self.to_client)

    @staticmethod
    def _vanish(outgoing: Pipe) -> None:
        if outgoing.sender is not None:
            outgoing.sender.vanish()
        outgoing.fall_silent()
