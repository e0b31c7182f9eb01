"""Tests of what a broker tells systemd, by its protocol, on a socket that stands in for systemd's."""

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from odradek.broker.service_manager import ServiceManager
from tests.support import running_broker


@contextmanager
def manager_at(address: str) -> Iterator[socket.socket]:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listening:
        listening.bind(address)
        listening.settimeout(30)
        yield listening


def message(listening: socket.socket) -> dict[str, str]:
    lines = listening.recv(4096).decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_a_broker_says_that_it_starts_serves_lives_and_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "notify")
    with manager_at(path) as listening:
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        monkeypatch.setenv("WATCHDOG_USEC", "20000")
        with running_broker(tmp_path) as broker:
            assert message(listening)["STATUS"].startswith("Starting")
            ready = message(listening)
            assert ready["READY"] == "1"
            assert broker.bootstrap.rpartition(":")[2] in ready["STATUS"]
            assert [message(listening) for _ in range(3)] == [{"WATCHDOG": "1"}] * 3
            broker.process.send_signal(signal.SIGTERM)
            while (last := message(listening)) == {"WATCHDOG": "1"}:
                pass
            assert last["STOPPING"] == "1"
            assert broker.process.wait(30) == 0
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.recv(4096)


def test_an_abstract_socket() -> None:
    name = f"odradek-test-{os.getpid()}"
    with manager_at(f"\0{name}") as listening:
        ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).stopping()
        assert message(listening)["STOPPING"] == "1"


def test_nobody_asked() -> None:
    loop = asyncio.new_event_loop()
    with closing(loop):
        for environ in ({}, {"NOTIFY_SOCKET": "vsock:2:1234"}):
            manager = ServiceManager(environ)
            manager.ready(loop, "")
            manager.stopping()


def test_another_process_is_watched(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    environ = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "17"}
    loop = asyncio.new_event_loop()
    with closing(loop), manager_at(path) as listening:
        ServiceManager(environ, pid=18).ready(loop, "Serving")
        assert message(listening) == {"READY": "1", "STATUS": "Serving"}
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.recv(4096)
        ServiceManager(environ, pid=17).ready(loop, "Serving")
        assert [message(listening) for _ in range(2)] == [
            {"READY": "1", "STATUS": "Serving"},
            {"WATCHDOG": "1"},
        ]


def test_a_manager_that_does_not_listen_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).stopping()
    assert "cannot tell the service manager STOPPING=1" in caplog.text
