"""Links to other nodes: what they do when the peer is not there."""

import asyncio
from random import Random

import pytest

from odradek.host.simulated import SimulatedHost, VirtualLoop
from odradek.net.channel import ChannelClosed
from odradek.net.link import LONGEST_PAUSE_SECONDS, MAX_UNDER_WAY, Link
from odradek.net.network import Dialer
from odradek.net.simulated import SimulatedNetwork
from odradek.storage.disk.simulated import SimulatedFiles
from tests.net.echo import BOUNDS, Echo, framed

SHORT = LONGEST_PAUSE_SECONDS / 2


def test_a_pause_ends_though_nobody_waits_that_long() -> None:
    """Every request gives up within the pause if its timeout is shorter: that must not begin the pause again."""
    loop = VirtualLoop()
    host = SimulatedHost(loop, Random(1), SimulatedFiles(), "here")
    network = SimulatedNetwork(loop, Random(2))
    link = Link(host, Dialer(network.place("here", host.context)))

    async def scenario() -> None:
        for _ in range(20):
            with pytest.raises(OSError):
                await link.ask(("there", 9093), framed(b"anybody?"), SHORT)
        network.place("there").serve(Echo().converse, BOUNDS).listen("PLAINTEXT", "there", 9093)
        for _ in range(3):
            try:
                response = await link.ask(("there", 9093), framed(b"anybody?"), SHORT)
            except OSError:
                continue
            assert b"anybody?" in bytes(response)
            return
        raise AssertionError("the link never tries again")

    async def within_a_minute() -> None:
        async with asyncio.timeout(60):
            await scenario()

    host.run(within_a_minute())


def test_a_peer_that_does_not_respond_does_not_fill_our_memory() -> None:
    loop = VirtualLoop()
    host = SimulatedHost(loop, Random(1), SimulatedFiles(), "here")
    network = SimulatedNetwork(loop, Random(2))
    link = Link(host, Dialer(network.place("here", host.context)))
    address = ("there", 9093)  # nobody is there, so all of them wait

    async def scenario() -> None:
        waiting = [host.create_task(link.ask(address, framed(b"x"), 60)) for _ in range(MAX_UNDER_WAY)]
        await asyncio.sleep(0)
        with pytest.raises(ChannelClosed, match="too many requests wait for there:9093"):
            await link.ask(address, framed(b"x"), 60)
        failures = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(failure, OSError) for failure in failures)

    host.run(scenario())
