"""Asking another node, by frame: the same over real sockets and over the simulated network."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from odradek.config.listeners import SecurityProtocol
from odradek.host.real import RealHost
from odradek.host.simulated import VirtualLoop
from odradek.net.channel import Channel, ChannelClosed
from odradek.net.network import Network, Server
from odradek.net.security import PLAINTEXT, Endpoint, Security
from odradek.net.simulated import SimulatedNetwork
from odradek.net.sockets import SocketNetwork
from tests.net.certificates import Certificates
from tests.net.echo import BOUNDS, Echo, framed


class Two:
    """A node that asks, and one that echoes."""

    def __init__(
        self, asking: Network, echoing: Network, host: str, listening: Security, connecting: Security
    ) -> None:
        self.asking = asking
        self.security = connecting
        self.echo = Echo()
        self.server: Server = echoing.serve(self.echo.converse, BOUNDS)
        self.host, self.port = host, self.server.listen("PLAINTEXT", host, 0, listening)

    async def connect(self) -> Channel:
        return await self.asking.connect(Endpoint(self.host, self.port, self.security), 10)

    def close(self) -> None:
        self.asking.close()
        self.server.stop_listening()
        self.server.close_connections()


Run = Callable[[Callable[[Two], Awaitable[None]]], None]


@pytest.fixture(params=["sockets", "sockets with TLS", "simulated", "simulated with TLS"])
def run(request: pytest.FixtureRequest, certificates: Certificates) -> Run:
    """Runs a scenario on two nodes."""
    listening = connecting = PLAINTEXT
    if "TLS" in request.param:
        contexts = certificates.server_context(), certificates.client_context()
        listening = Security(SecurityProtocol.SSL, tls=lambda: contexts[0])
        connecting = Security(SecurityProtocol.SSL, tls=lambda: contexts[1])

    def on_sockets(scenario: Callable[[Two], Awaitable[None]]) -> None:
        async def main() -> None:
            host = RealHost(asyncio.get_running_loop())
            two = Two(SocketNetwork(host), SocketNetwork(host), "localhost", listening, connecting)
            await asyncio.wait_for(scenario(two), 60)
            two.close()

        asyncio.run(main())

    def simulated(scenario: Callable[[Two], Awaitable[None]]) -> None:
        for seed in range(20):
            loop = VirtualLoop()
            network = SimulatedNetwork(loop, random.Random(seed))
            two = Two(network.place("a"), network.place("b"), "b", listening, connecting)

            async def main(two: Two = two) -> None:
                await asyncio.wait_for(scenario(two), 60)
                two.close()

            loop.run_until_complete(main())
            loop.close()

    return on_sockets if "sockets" in request.param else simulated


def contents(count: int) -> list[bytes]:
    """Small ones, some larger than one read, some than the buffers of the network."""
    return [bytes([number % 256]) * (300_000 if number % 17 == 5 else 10 + number) for number in range(count)]


def test_responses_come_in_the_order_of_the_requests(run: Run) -> None:
    async def scenario(two: Two) -> None:
        channel = await two.connect()
        wanted = contents(60)
        responses = [channel.send(framed(content)) for content in wanted]
        assert channel.is_busy
        assert [bytes(await response) for response in responses] == wanted
        assert two.echo.talks[0].received == wanted
        assert not channel.is_busy and channel.is_open and channel.unsent_bytes == 0

    run(scenario)


def test_a_request_may_be_sent_in_parts(run: Run) -> None:
    async def scenario(two: Two) -> None:
        channel = await two.connect()
        assert bytes(await channel.send(b"\0\0\0", b"\5he", memoryview(b"llo"))) == b"hello"

    run(scenario)


def test_a_lost_connection_takes_its_requests_with_it(run: Run) -> None:
    async def scenario(two: Two) -> None:
        channel = await two.connect()
        await channel.send(framed(b"first"))
        two.echo.is_silent = True
        responses = [channel.send(framed(b"no response")) for _ in range(3)]
        while len(two.echo.received) < 4:
            await asyncio.sleep(0.001)
        two.echo.talks[0].transport.close("test")
        for response in responses[:2]:
            with pytest.raises(ChannelClosed):
                await response
        assert "lost: closed by the peer" in await channel.closed()
        assert not channel.is_open
        with pytest.raises(ChannelClosed):
            channel.send(framed(b"too late"))

    run(scenario)


def test_the_peer_hears_that_we_close(run: Run) -> None:
    async def scenario(two: Two) -> None:
        channel = await two.connect()
        response = channel.send(framed(b"x"))
        await response
        unanswered = channel.send(framed(b"x"))
        channel.close()
        with pytest.raises(ChannelClosed):
            await unanswered
        while two.echo.talks[0].lost_because is None:
            await asyncio.sleep(0.001)
        assert two.server.connection_count == 0

    run(scenario)


def test_who_stops_waiting_keeps_its_place_in_the_order(run: Run) -> None:
    async def scenario(two: Two) -> None:
        channel = await two.connect()
        two.echo.is_silent = True
        first, second = channel.send(framed(b"1")), channel.send(framed(b"2"))
        while len(two.echo.received) < 2:
            await asyncio.sleep(0.001)
        first.cancel()
        for content in two.echo.received:
            two.echo.talks[0].say(content)
        assert bytes(await second) == b"2"

    run(scenario)


def test_a_response_to_no_request_ends_the_connection(run: Run) -> None:
    async def scenario(two: Two) -> None:
        channel = await two.connect()
        await channel.send(framed(b"x"))
        two.echo.talks[0].say(b"and another thing")
        assert "a response to no request" in await channel.closed()

    run(scenario)


def test_what_a_slow_peer_does_not_take_waits_here(run: Run) -> None:
    async def scenario(two: Two) -> None:
        channel = await two.connect()
        await channel.send(framed(b"x"))
        two.echo.talks[0].transport.pause_reading()
        wanted = [bytes([number]) * 500_000 for number in range(20)]
        responses = [channel.send(framed(content)) for content in wanted]
        await asyncio.sleep(0.05)
        assert channel.unsent_bytes > 0
        two.echo.talks[0].transport.resume_reading()
        assert [bytes(await response) for response in responses] == wanted
        assert channel.unsent_bytes == 0

    run(scenario)


def test_nobody_listens(run: Run) -> None:
    async def scenario(two: Two) -> None:
        two.server.stop_listening()
        with pytest.raises(ConnectionRefusedError):
            await two.connect()

    run(scenario)


def test_a_network_closes_what_it_connected(run: Run) -> None:
    async def scenario(two: Two) -> None:
        channels = [await two.connect() for _ in range(3)]
        two.asking.close()
        for channel in channels:
            assert "this node is stopping" in await channel.closed()

    run(scenario)


class Asking:
    """Takes a response in the turn in which it arrives, and sends the next request from there."""

    keeps_frame = False

    def __init__(self, channel: Channel, todo: list[bytes]) -> None:
        self.channel, self.todo = channel, list(todo)
        self.taken: list[bytes] = []
        self.views: list[memoryview] = []
        self.is_over = asyncio.Event()
        self.error: ChannelClosed | None = None

    def ask(self) -> None:
        self.channel.send_for(self, framed(self.todo.pop(0)))

    def take(self, frame: memoryview) -> None:
        self.taken.append(bytes(frame))
        self.views.append(frame)
        if self.todo:
            self.ask()
        else:
            self.is_over.set()

    def fail(self, error: ChannelClosed) -> None:
        self.error = error
        self.is_over.set()


def test_a_taker_gets_its_responses_in_the_memory_in_which_they_arrive(run: Run) -> None:
    """Which is used again afterwards: a large frame is not cleared for each response."""

    async def scenario(two: Two) -> None:
        wanted = [b"small", b"a" * 300_000, b"b" * 300_000, b"c" * 300_000, b"last"]
        asking = Asking(await two.connect(), wanted)
        asking.ask()
        await asking.is_over.wait()
        await asyncio.sleep(0.001)
        assert asking.taken == wanted
        assert [bytes(view) for view in asking.views[:3]] != wanted[:3], "overwritten"
        assert bytes(asking.views[1]) == bytes(asking.views[2]), "the same memory, or both cleared"

    run(scenario)


def test_a_taker_hears_that_the_connection_is_lost(run: Run) -> None:
    async def scenario(two: Two) -> None:
        two.echo.is_silent = True
        asking = Asking(await two.connect(), [b"no response"])
        asking.ask()
        while not two.echo.received:
            await asyncio.sleep(0.001)
        two.echo.talks[0].transport.close("test")
        await asking.is_over.wait()
        assert asking.error is not None and not asking.channel.is_busy

    run(scenario)
