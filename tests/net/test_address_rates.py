"""connection_creation_rate: connections over the quota of their address are held for a while, then closed unserved."""

import asyncio
import socket

import pytest

from odradek.host.real import RealHost
from odradek.net import server as server_module
from odradek.net.address_rates import AddressRates
from odradek.net.bounds import Bounds
from odradek.net.server import Server
from tests.net.test_accepting import BOUNDS, Silent

HERE = "127.0.0.1"


def test_an_address_may_use_what_it_has_not_used_and_then_waits() -> None:
    rates = AddressRates({"10.0.0.1": 2.0, None: 100.0}, 3, 1000)
    assert [rates.throttle_ms("10.0.0.1", 0) for _ in range(5)] == [0, 0, 0, 0, 500]
    assert rates.throttle_ms("10.0.0.1", 100) > 0, "those that are refused do not count"
    assert rates.throttle_ms("10.0.0.2", 0) == 0
    assert rates.throttle_ms("10.0.0.1", 10_000) == 0


def test_without_a_default_others_are_not_limited() -> None:
    rates = AddressRates({"10.0.0.1": 1.0}, 3, 1000)
    assert [rates.throttle_ms("10.0.0.2", 0) for _ in range(100)] == [0] * 100


def test_nobody_waits_for_longer_than_a_window() -> None:
    rates = AddressRates({None: 1.0}, 2, 1000)
    rates.throttle_ms(HERE, 0)
    assert rates.throttle_ms(HERE, 0) == 1000


async def is_closed(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return await asyncio.get_running_loop().sock_recv(client, 1) == b""
    except ConnectionError:
        return True


def limited(rate: float) -> Bounds:
    return BOUNDS._replace(new_connections_of_address={HERE: rate}, rate_windows=2, rate_window_ms=1000)


def test_connections_over_the_quota_are_held_and_closed() -> None:
    async def scenario() -> None:
        server = Server(RealHost(asyncio.get_running_loop()), Silent, limited(3.0))
        port = server.listen("PLAINTEXT", HERE, 0)
        clients = [socket.create_connection((HERE, port)) for _ in range(5)]
        while server.traffic.throttled_connections < 2:
            await asyncio.sleep(0.01)
        assert server.connection_count == 3
        async with asyncio.timeout(20):
            assert [await is_closed(client) for client in clients[3:]] == [True, True]
        assert not server._held
        server.reconfigure(BOUNDS)
        clients += [socket.create_connection((HERE, port)) for _ in range(3)]
        while server.connection_count < 6:
            await asyncio.sleep(0.01)
        server.stop_listening()
        server.close_connections()
        for client in clients:
            client.close()

    asyncio.run(scenario())


def test_only_so_many_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MOST_HELD", 1)

    async def scenario() -> None:
        server = Server(RealHost(asyncio.get_running_loop()), Silent, limited(1.0))
        port = server.listen("PLAINTEXT", HERE, 0)
        clients = [socket.create_connection((HERE, port)) for _ in range(4)]
        while server.traffic.throttled_connections < 3:
            await asyncio.sleep(0.01)
        assert len(server._held) <= 1
        server.stop_listening()
        server.close_connections()
        assert not server._held
        for client in clients:
            client.close()

    asyncio.run(scenario())
