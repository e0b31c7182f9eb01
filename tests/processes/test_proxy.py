"""The proxy itself: what may not pass waits, in one direction, and arrives whole when it may."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.processes.proxy import HOST, Proxy

TIMEOUT_S = 30
SHORT_S = 0.2  # in which something that is cut does not arrive


def request(sender: str, text: str, api_key: int = 3) -> bytes:
    client_id = sender.encode()
    frame = struct.pack(">hhih", api_key, 0, 0, len(client_id)) + client_id + text.encode()
    return struct.pack(">i", len(frame)) + frame


@contextmanager
def echo_node() -> Iterator[int]:
    """Answers each byte by itself, on any number of connections."""
    with socket.create_server((HOST, 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=echo, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def echo(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    yield proxy
    proxy.close()


@pytest.fixture
def port(proxy: Proxy) -> Iterator[int]:
    """The proxy of node 1, which answers what it is asked."""
    with echo_node() as real_port:
        port = proxy.open(1)
        proxy.lead_to(port, real_port)
        yield port


def connect(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), TIMEOUT_S)


def receive(connection: socket.socket, frame: bytes) -> None:
    data = b""
    while len(data) < len(frame):
        part = connection.recv(len(frame) - len(data))
        assert part, "closed"
        data += part
    assert data == frame


def receives_nothing(connection: socket.socket) -> bool:
    connection.settimeout(SHORT_S)
    try:
        return not connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(TIMEOUT_S)


def test_frames_pass(port: int) -> None:
    with connect(port) as connection:
        for text in ("one", "two" * 10_000):
            connection.sendall(request("node-2", text))
            receive(connection, request("node-2", text))


def test_a_replica_that_fetches_is_its_node(proxy: Proxy, port: int) -> None:
    proxy.cut_one_way(2, 1)
    with connect(port) as connection:
        connection.sendall(request("broker-2", "late"))
        assert receives_nothing(connection)
        proxy.heal()
        receive(connection, request("broker-2", "late"))


def test_the_port_of_a_node_that_has_ended_is_kept_and_refuses(proxy: Proxy, port: int) -> None:
    with connect(port) as silent, connect(port) as connection, echo_node() as elsewhere:
        connection.sendall(request("node-2", "one"))
        receive(connection, request("node-2", "one"))
        proxy.refuse(1)
        assert (silent.recv(1), connection.recv(1)) == (b"", b"")
        with pytest.raises(ConnectionRefusedError):
            connect(port)
        with pytest.raises(OSError, match="in use"), socket.socket() as thief:
            thief.bind((HOST, port))
        proxy.lead_to(port, elsewhere)
        with connect(port) as again:
            again.sendall(request("node-2", "two"))
            receive(again, request("node-2", "two"))


@pytest.mark.parametrize("cut", [(2, 1), (1, 2)], ids=["requests", "responses"])
def test_a_cut_is_of_one_direction_between_two_nodes(proxy: Proxy, port: int, cut: tuple[int, int]) -> None:
    proxy.cut_one_way(*cut)
    with connect(port) as of_two, connect(port) as of_three:
        of_two.sendall(request("node-2", "late"))
        of_three.sendall(request("node-3", "in time"))
        receive(of_three, request("node-3", "in time"))
        assert receives_nothing(of_two)
        proxy.heal()
        receive(of_two, request("node-2", "late"))


def test_one_frame_is_held(proxy: Proxy, port: int) -> None:
    held = proxy.hold_next(2, 1, api_key=52)
    with connect(port) as connection:
        connection.sendall(request("node-2", "passes", api_key=1))
        receive(connection, request("node-2", "passes", api_key=1))
        connection.sendall(request("node-2", "waits", api_key=52) + request("node-2", "behind", api_key=1))
        held.wait()
        assert receives_nothing(connection)
        held.release()
        receive(connection, request("node-2", "waits", api_key=52))
        receive(connection, request("node-2", "behind", api_key=1))


def test_a_delayed_frame_comes(proxy: Proxy, port: int) -> None:
    proxy.delay(2, 1, 0.05)
    with connect(port) as connection:
        connection.sendall(request("node-2", "late"))
        receive(connection, request("node-2", "late"))


def test_who_connects_to_a_node_that_is_down_is_told(proxy: Proxy) -> None:
    with socket.socket() as nobody:
        nobody.bind((HOST, 0))
        port = proxy.open(1)
        proxy.lead_to(port, nobody.getsockname()[1])
        with connect(port) as connection:
            connection.sendall(request("node-2", "hello"))
            assert connection.recv(1) == b""


def test_no_connection_outlives_the_node_that_it_leads_to(proxy: Proxy) -> None:
    """Not even one that was being accepted when the node's process ended: its client would wait for ever."""
    with socket.create_server((HOST, 0)) as node:
        port = proxy.open(1)
        for _ in range(50):
            proxy.lead_to(port, node.getsockname()[1])
            clients = [socket.create_connection((HOST, port), timeout=TIMEOUT_S) for _ in range(3)]
            proxy.refuse(1)
            for client in clients:
                with client, suppress(ConnectionResetError):
                    assert client.recv(1) == b""
