"""Tests of where a broker listens, and what it tells clients to connect to."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.config.definition import ConfigError
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.metadata import MetadataRequest
from tests.broker.in_process import InProcess
from tests.protocol.raw import Raw
from tests.support import RunningBroker, running_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("listeners")) as running:
        yield running


def advertised(raw: Raw) -> list[tuple[str, int]]:
    return [(node.host, node.port) for node in raw.ask(MetadataRequest(topics=[])).brokers]


def test_port_0_is_answered_with_the_real_port(broker: RunningBroker) -> None:
    port = int(broker.bootstrap.rpartition(":")[2])
    assert port > 0
    with Raw(broker.bootstrap) as raw:
        assert advertised(raw) == [("localhost", port)]
        (node,) = raw.ask(DescribeClusterRequest()).brokers
        assert (node.host, node.port) == ("localhost", port)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_localhost_is_ipv4_and_ipv6(broker: RunningBroker, host: str) -> None:
    port = int(broker.bootstrap.rpartition(":")[2])
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError:
        pytest.skip(f"there is no {host} on this machine")
    with socket.create_connection((host, port), 20) as connection:
        connection.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff")
        assert connection.recv(8)[4:] == b"\0\0\0\x01"


def listening(
    data_dir: Path, settings: dict[str, str]
) -> tuple[list[tuple[str, int]], list[tuple[str, str, int]]]:
    """Return what a client of the PLAINTEXT listener is told, and the addresses of all listeners."""

    async def main() -> tuple[list[tuple[str, int]], list[tuple[str, str, int]]]:
        async with InProcess(str(data_dir), settings=settings) as broker:
            told = (await broker.ask(MetadataRequest(topics=[]), 12)).brokers
            listeners = [(item.name, item.host, item.port) for item in broker.broker.listeners]
            return [(node.host, node.port) for node in told], listeners

    return asyncio.run(main())


def test_every_address_is_listened_on_and_never_advertised(tmp_path: Path) -> None:
    """0.0.0.0 is no address to connect to: the host's name is told instead."""
    ((host, port),), _ = listening(tmp_path, {"listeners": "PLAINTEXT://0.0.0.0:0"})
    assert host == socket.gethostname()
    assert port > 0


def test_an_address_to_advertise_that_cannot_be_connected_to_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"advertised\.listeners"):
        listening(tmp_path, {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"})


def test_each_listener_advertises_its_own_address(tmp_path: Path) -> None:
    settings = {
        "listeners": "PLAINTEXT://localhost:0,INSIDE://localhost:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://outside.example:9092,INSIDE://inside.example:9093",
        "inter.broker.listener.name": "INSIDE",
    }
    told, listeners = listening(tmp_path, settings)
    assert told == [("outside.example", 9092)]
    assert listeners == [("PLAINTEXT", "outside.example", 9092), ("INSIDE", "inside.example", 9093)]


@pytest.mark.parametrize(
    ("protocol", "missing"),
    [("SSL", "certificate"), ("SASL_PLAINTEXT", "login module"), ("SASL_SSL", "certificate")],
)
def test_a_listener_that_should_be_safe_is_never_open_instead(
    tmp_path: Path, protocol: str, missing: str
) -> None:
    with pytest.raises(ConfigError, match=f"needs a {missing}"):
        listening(tmp_path, {"listeners": f"{protocol}://localhost:0"})


def test_more_than_one_data_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="more than one directory"):
        listening(tmp_path, {"log.dirs": f"{tmp_path}/one,{tmp_path}/two"})
