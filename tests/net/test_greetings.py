"""Tests of what happens before the first request, over the simulated network: handshakes that stall, split and drop,
greetings under cuts, and the bounds of both.
"""

import asyncio
import logging
import math
import random
import socket
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from odradek.config.listeners import SecurityProtocol
from odradek.errors import ProtocolError
from odradek.host.real import RealHost
from odradek.host.simulated import SimulatedHost, VirtualLoop
from odradek.net import greeting
from odradek.net.channel import Channel, ChannelClosed
from odradek.net.greeting import (
    ACCEPTED_SECONDS,
    GREETING_SECONDS,
    MAX_EXCHANGES,
    MAX_FRAME_SIZE,
    GreetingRefused,
)
from odradek.net.link import Link
from odradek.net.network import Dialer
from odradek.net.security import PLAINTEXT, Endpoint, Exchange, Greet, Security
from odradek.net.server import Server
from odradek.net.simulated import SimulatedNetwork
from odradek.net.simulated_greeting import GreetingFaults
from odradek.net.simulated_wire import GIVE_UP_SECONDS
from odradek.net.sockets import SocketNetwork
from odradek.net.transport import Transport
from odradek.storage.disk.simulated import SimulatedFiles
from tests.net.echo import BOUNDS, Echo, EchoTalk, framed

PORT = 9092
TLS = Security(SecurityProtocol.SSL)
PASSWORD = b"password"


class GuardedTalk(EchoTalk):
    """Echoes only to peers that have sent the password first, in two frames."""

    def __init__(self, echo: Echo, transport: Transport) -> None:
        super().__init__(echo, transport)
        self.heard: list[bytes] = []
        transport.begin_greeting(MAX_FRAME_SIZE)

    def receive(self, frame: memoryview) -> None:
        if len(self.heard) == 2:
            super().receive(frame)
            return
        self.heard.append(bytes(frame))
        self.say(b"go on")
        if len(self.heard) == 2:
            if b"".join(self.heard) == PASSWORD:
                self.transport.end_greeting()
            else:
                self.transport.close("wrong password", logging.INFO)


class Guarded(Echo):
    def converse(self, transport: Transport) -> EchoTalk:
        self.talks.append(GuardedTalk(self, transport))
        return self.talks[-1]


async def log_in(peer: Exchange) -> None:
    for half in (PASSWORD[:4], PASSWORD[4:]):
        assert bytes(await peer.ask(framed(half))) == b"go on"


def guarded(protocol: SecurityProtocol, greet: Greet = log_in) -> Security:
    return Security(protocol, greet)


SASL_PLAINTEXT, SASL_SSL = guarded(SecurityProtocol.SASL_PLAINTEXT), guarded(SecurityProtocol.SASL_SSL)


class World:
    """A node `b` that echoes, to those who are let in; whoever else connects to it."""

    def __init__(self, seed: int, security: Security) -> None:
        self.security = security
        self.rng = random.Random(seed)
        self.loop = VirtualLoop()
        self.network = SimulatedNetwork(self.loop, self.rng)
        self.echo = Echo() if security.greet is None else Guarded()
        self.server = self.network.place("b").serve(self.echo.converse, BOUNDS)
        self.server.listen(security.protocol.name, "", PORT, security)
        self.host = SimulatedHost(self.loop, random.Random(seed), SimulatedFiles(), "a")

    async def connect(self, security: Security | None = None) -> Channel:
        endpoint = Endpoint("b", PORT, self.security if security is None else security)
        return await self.network.place("a").connect(endpoint, 10)

    def link(self) -> Link:
        return Link(self.host, Dialer(self.network.place("a"), self.security))


def run(security: Security, scenario: Callable[[World], Awaitable[None]], seeds: int = 20) -> None:
    for seed in range(seeds):
        world = World(seed, security)
        world.loop.run_until_complete(asyncio.wait_for(scenario(world), 10_000))
        world.loop.close()


def contents(count: int) -> list[bytes]:
    return [bytes([number]) * (70_000 if number % 7 == 3 else 10 + number) for number in range(count)]


all_securities = pytest.mark.parametrize(
    "security", [PLAINTEXT, TLS, SASL_PLAINTEXT, SASL_SSL], ids=lambda security: security.protocol.name
)


@all_securities
def test_requests_follow_the_greeting(security: Security) -> None:
    async def scenario(world: World) -> None:
        channel = await world.connect()
        wanted = contents(30)
        responses = [channel.send(framed(content)) for content in wanted]
        assert [bytes(await response) for response in responses] == wanted
        assert world.echo.received == wanted

    run(security, scenario)


@all_securities
def test_a_seed_tells_it_all(security: Security) -> None:
    def trace(seed: int) -> list[float]:
        times: list[float] = []
        world = World(seed, security)

        async def scenario() -> None:
            for content in contents(10):
                channel = await world.connect()
                await channel.send(framed(content))
                times.append(world.loop.time())

        world.loop.run_until_complete(scenario())
        return times

    assert trace(1) == trace(1) != trace(2)


@pytest.mark.parametrize(
    "security", [TLS, SASL_PLAINTEXT, SASL_SSL], ids=lambda security: security.protocol.name
)
def test_links_with_greetings_under_cuts_and_losses(security: Security) -> None:
    """Whatever is cut, lost, stalled or dropped before, after and in a greeting: a link gets its own responses or an
    OSError, no request passes before the greeting, nothing waits forever, and once all is well requests pass."""
    outcomes: Counter[str] = Counter()

    async def scenario(world: World) -> None:
        link, network, rng = world.link(), world.network, world.rng
        for number in range(40):
            network.greeting_faults = GreetingFaults(stall=0.1, drop=0.1)
            misfortune = rng.random()
            if misfortune < 0.1:
                network.cut(*rng.choice((("a", "b"), ("b", "a"))))
            elif misfortune < 0.2:
                world.loop.call_later(rng.random() * 0.02, network.drop_connections, "a", "b")
            elif misfortune < 0.5:
                network.heal_all()
            outcomes[await attempt(link, number)] += 1
        network.heal_all()
        network.greeting_faults = GreetingFaults(0.0, 0.0)
        await asyncio.sleep(2 * GIVE_UP_SECONDS)
        assert await attempt(link, 255) == "done"
        link.close()
        await asyncio.sleep(2 * GIVE_UP_SECONDS)
        assert world.server.connection_count == 0, "each end has heard of the end, or given up"

    async def attempt(link: Link, number: int) -> str:
        try:
            response = await link.ask(("b", PORT), framed(bytes([number])), 8)
        except OSError as error:
            return type(error).__name__
        assert bytes(response) == bytes([number])
        return "done"

    run(security, scenario, 30)
    assert outcomes["done"] > 100 and outcomes["TimeoutError"] > 10 and outcomes["ChannelClosed"] > 10
    if security.protocol.uses_tls:
        assert outcomes["GreetingRefused"] > 10


# --- bounds of time ---


async def talk(world: World, security: Security = PLAINTEXT) -> Channel:
    """A connection on which nobody greets, whatever the listener wants."""
    channel = await world.network.place("a").converse(Endpoint("b", PORT, security), 10, Channel)
    assert isinstance(channel, Channel)
    return channel


@pytest.mark.parametrize("security", [TLS, SASL_PLAINTEXT], ids=lambda security: security.protocol.name)
def test_a_peer_that_says_nothing_is_closed_in_time(security: Security) -> None:
    async def scenario(world: World) -> None:
        silent, well = await talk(world), await world.connect()
        await silent.closed()
        assert ACCEPTED_SECONDS <= world.loop.time() < ACCEPTED_SECONDS + 1
        assert bytes(await well.send(framed(b"x"))) == b"x", "a greeted connection may be idle"
        assert world.server.connection_count == 1

    run(security, scenario, 5)


def test_a_peer_that_stalls_in_the_middle_of_its_greeting_is_closed_in_time() -> None:
    async def scenario(world: World) -> None:
        channel = await talk(world, Security(SecurityProtocol.SSL))
        await channel.send(framed(PASSWORD[:4]))
        await channel.closed()
        assert world.server.connection_count == 0

    run(SASL_SSL, scenario, 5)


def test_who_connects_to_a_node_that_stalls_gives_up_in_time() -> None:
    async def scenario(world: World) -> None:
        world.network.greeting_faults = GreetingFaults(stall=1.0, drop=0.0)
        with pytest.raises(TimeoutError):
            await world.connect()
        assert world.loop.time() < GREETING_SECONDS + 1
        await asyncio.sleep(1)
        assert world.server.connection_count == 0

    run(TLS, scenario, 5)


def test_who_connects_to_a_node_that_does_not_answer_its_greeting_gives_up_in_time() -> None:
    async def never(peer: Exchange) -> None:
        await peer.ask(framed(b"anybody?"))

    async def scenario(world: World) -> None:
        world.echo.is_silent = True
        with pytest.raises(TimeoutError):
            await world.connect(Security(greet=never))
        assert world.loop.time() < GREETING_SECONDS + 1
        await asyncio.sleep(1)
        assert world.server.connection_count == 0

    run(PLAINTEXT, scenario, 5)


def test_a_link_does_not_wait_for_a_greeting_at_an_address_where_the_peer_is_no_longer() -> None:
    """A hung node accepts connections and says nothing."""

    async def scenario(world: World) -> None:
        link = world.link()
        other = world.network.place("c").serve(Echo().converse, BOUNDS)
        other.listen("SSL", "", PORT, TLS)
        world.network.greeting_faults = GreetingFaults(stall=1.0, drop=0.0)
        stuck = world.loop.create_task(link.ask(("b", PORT), framed(b"x"), 60))
        await asyncio.sleep(1)
        world.network.greeting_faults = GreetingFaults(0.0, 0.0)
        link.go_to(("c", PORT))
        with pytest.raises(OSError):
            await stuck
        assert bytes(await link.ask(("c", PORT), framed(b"x"), 60)) == b"x"
        assert world.loop.time() < GREETING_SECONDS

    run(TLS, scenario, 5)


def test_a_link_that_is_closed_stops_greeting() -> None:
    async def scenario(world: World) -> None:
        link = world.link()
        world.network.greeting_faults = GreetingFaults(stall=1.0, drop=0.0)
        stuck = world.loop.create_task(link.ask(("b", PORT), framed(b"x"), 60))
        await asyncio.sleep(1)
        link.close()
        with pytest.raises(OSError):
            await stuck
        assert world.loop.time() < 2

    run(TLS, scenario, 5)


# --- bounds of size and number ---


def test_a_greeting_has_only_so_many_exchanges() -> None:
    async def endless(peer: Exchange) -> None:
        while True:
            await peer.ask(framed(b"again"))

    async def scenario(world: World) -> None:
        with pytest.raises(GreetingRefused, match="more than 20 exchanges"):
            await world.connect(Security(greet=endless))
        await asyncio.sleep(1)
        assert world.echo.received == [b"again"] * MAX_EXCHANGES
        assert world.server.connection_count == 0

    run(PLAINTEXT, scenario, 3)


def test_a_large_frame_before_the_greeting_is_over_ends_the_connection() -> None:
    async def scenario(world: World) -> None:
        channel = await talk(world)
        channel.send(framed(bytes(MAX_FRAME_SIZE + 1)))
        await channel.closed()
        assert world.echo.talks[0].lost_because == (
            f"it announced a frame of {MAX_FRAME_SIZE + 1} bytes before it has authenticated"
        )
        greeted = await world.connect()
        content = bytes(MAX_FRAME_SIZE + 1)
        assert bytes(await greeted.send(framed(content))) == content

    run(SASL_PLAINTEXT, scenario, 3)


def test_a_large_response_in_a_greeting_ends_the_connection() -> None:
    async def greet(peer: Exchange) -> None:
        await peer.ask(framed(bytes(MAX_FRAME_SIZE + 1)))

    async def scenario(world: World) -> None:
        with pytest.raises(ChannelClosed, match="before it has authenticated"):
            await world.connect(Security(greet=greet))

    run(PLAINTEXT, scenario, 3)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ProtocolError("half a message"), "cannot be read: half a message"),
        (GreetingRefused("wrong password"), "wrong password"),
    ],
)
def test_a_greeting_that_fails_ends_the_connection(error: Exception, reason: str) -> None:
    async def greet(peer: Exchange) -> None:
        raise error

    async def scenario(world: World) -> None:
        with pytest.raises(GreetingRefused, match=reason):
            await world.connect(Security(greet=greet))
        await asyncio.sleep(1)
        assert world.server.connection_count == 0
        assert world.echo.talks[0].received == []

    run(PLAINTEXT, scenario, 3)


def test_a_link_that_is_refused_tries_again_after_a_pause() -> None:
    """It is treated as one whose peer is not there: a wrong password must not keep two nodes busy."""

    async def greet(peer: Exchange) -> None:
        for half in (b"wrong", b"password"):
            await peer.ask(framed(half))
        await peer.ask(framed(b"is somebody there?"))

    async def scenario(world: World) -> None:
        link = Link(world.host, Dialer(world.network.place("a"), guarded(SecurityProtocol.SSL, greet)))
        for _ in range(10):
            with pytest.raises(OSError):
                await link.ask(("b", PORT), framed(b"x"), 10)
        assert world.loop.time() > 2
        assert world.echo.received == []

    run(SASL_SSL, scenario, 3)


# --- ends that do not fit ---


def test_a_plain_client_at_a_listener_with_tls_and_the_reverse(caplog: pytest.LogCaptureFixture) -> None:
    async def plain(world: World) -> None:
        channel = await talk(world)
        with pytest.raises(ChannelClosed):
            await channel.send(framed(b"hello"))

    async def protected(world: World) -> None:
        with pytest.raises(GreetingRefused):
            await world.connect(TLS)

    run(TLS, plain, 1)
    run(PLAINTEXT, protected, 1)
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert "it does not speak TLS, but this listener wants it" in warnings[0]
    assert "it speaks TLS, but this listener is PLAINTEXT" in warnings[1]


def test_a_node_that_stops_does_not_wait_for_greetings() -> None:
    async def scenario(world: World) -> None:
        channel = await talk(world)
        await asyncio.sleep(1)
        world.server.stop_listening()
        await channel.closed()
        assert world.server.connection_count == 0

    run(TLS, scenario, 3)


# --- real sockets ---


async def say(client: socket.socket, content: bytes) -> bytes:
    """Returns the response, or b"" where the connection is closed instead."""
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_sendall(client, framed(content))
        return (await loop.sock_recv(client, 1000))[4:]
    except ConnectionError:
        return b""


def on_sockets(scenario: Callable[[SocketNetwork, Server, Guarded, int], Awaitable[None]]) -> None:
    async def main() -> None:
        network, echo = SocketNetwork(RealHost(asyncio.get_running_loop())), Guarded()
        server = network.serve(echo.converse, BOUNDS)
        port = server.listen("SASL", "127.0.0.1", 0, SASL_PLAINTEXT)
        await asyncio.wait_for(scenario(network, server, echo, port), 60)
        network.close()
        server.stop_listening()
        server.close_connections()

    asyncio.run(main())


def connect(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    client.setblocking(False)
    return client


def test_connections_on_sockets_are_greeted() -> None:
    async def scenario(network: SocketNetwork, server: Server, echo: Guarded, port: int) -> None:
        channel = await network.connect(Endpoint("127.0.0.1", port, SASL_PLAINTEXT), 10)
        wanted = bytes(MAX_FRAME_SIZE + 1)
        assert bytes(await channel.send(framed(wanted))) == wanted
        with connect(port) as large:
            assert await say(large, wanted) == b"", "closed when its size has arrived"
        assert echo.talks[-1].lost_because == (
            "it announced a frame of 65537 bytes before it has authenticated, when 65536 are allowed"
        )

    on_sockets(scenario)


def test_while_too_many_greet_others_wait_and_silent_ones_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "MAX_GREETINGS", 2)
    monkeypatch.setattr(greeting, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(greeting, "STALLED_SECONDS", math.inf)

    async def scenario(network: SocketNetwork, server: Server, echo: Guarded, port: int) -> None:
        first, silent, third = connect(port), connect(port), connect(port)
        assert await say(first, PASSWORD[:4]) == b"go on"
        while server.connection_count < 2:
            await asyncio.sleep(0.001)
        third.send(framed(PASSWORD[:4]))
        await asyncio.sleep(0.05)
        assert server.connection_count == 2, "the third one waits in the backlog"
        assert await say(first, PASSWORD[4:]) == b"go on"
        assert await asyncio.get_running_loop().sock_recv(third, 1000) == framed(b"go on")
        assert server.connection_count == 3, "a greeted connection makes room"
        monkeypatch.setattr(greeting, "STALLED_SECONDS", 0.1)
        assert await asyncio.get_running_loop().sock_recv(silent, 1000) == b"", "others may wait"
        assert await say(first, b"x") == b"x", "who is greeted may be silent"
        for client in (first, silent, third):
            client.close()

    on_sockets(scenario)


def test_too_many_on_one_listener_keep_nobody_from_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers in front of the clients' listener do not keep nodes from theirs."""
    monkeypatch.setattr(greeting, "MAX_GREETINGS", 2)
    monkeypatch.setattr(greeting, "STALLED_SECONDS", math.inf)

    async def scenario(network: SocketNetwork, server: Server, echo: Guarded, port: int) -> None:
        nodes = server.listen("NODES", "127.0.0.1", 0, SASL_PLAINTEXT)
        strangers = [connect(port) for _ in range(3)]
        for stranger in strangers[:2]:
            assert await say(stranger, PASSWORD[:4]) == b"go on"
        with connect(nodes) as node:
            assert await say(node, PASSWORD[:4]) == b"go on"
        assert server.connection_count == 3, "the third stranger waits"
        for stranger in strangers:
            stranger.close()

    on_sockets(scenario)


def test_a_silent_client_is_closed_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "ACCEPTED_SECONDS", 0.0)
    monkeypatch.setattr(greeting, "CHECK_SECONDS", 0.01)

    async def scenario(network: SocketNetwork, server: Server, echo: Guarded, port: int) -> None:
        with connect(port) as silent:
            assert await asyncio.get_running_loop().sock_recv(silent, 1000) == b""
        assert echo.talks[0].lost_because == "it was not ready for requests within 0 s"

    on_sockets(scenario)
