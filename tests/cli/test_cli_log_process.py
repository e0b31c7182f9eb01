"""The log of a real broker: strangers at its port, JSON, levels from options and from the environment."""

import json
import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import odradek_command, run_command


class Started:
    def __init__(self, port: int, log: Path, process: "subprocess.Popen[str]") -> None:
        self.port = port
        self._log = log
        self._process = process

    @property
    def lines(self) -> list[str]:
        return self._log.read_text().splitlines()

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(30) == 0

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 30)

    def send(self, data: bytes) -> None:
        """And wait until the broker hangs up, which it logs before."""
        with self.connect() as client:
            client.sendall(data)
            try:
                assert client.recv(1) == b""
            except ConnectionResetError:
                pass


@contextmanager
def started(tmp_path: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> Iterator[Started]:
    log = tmp_path / "log"
    command = odradek_command("up", "--port", "0", "--json", "--data-dir", str(tmp_path / "data"), *arguments)
    with log.open("w") as stderr:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=os.environ | dict(environ or {})
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        yield Started(int(json.loads(line)["bootstrap"].rpartition(":")[2]), log, process)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_strangers_are_named_and_repeats_are_counted(tmp_path: Path) -> None:
    with started(tmp_path) as broker:
        context = ssl.create_default_context()
        for _ in range(20):
            with broker.connect() as client, pytest.raises((ssl.SSLError, OSError)):
                context.wrap_socket(client, server_hostname="localhost")
        broker.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        broker.send(b"SSH-2.0-OpenSSH_9.6\r\n")
        before = broker.lines
        broker.stop()
        after = broker.lines[len(before) :]
    tls, http, ssh = (line for line in before if "it speaks" in line)
    assert "closing 127.0.0.1:" in tls
    assert "WARNING [node 1] odradek.net.plaintext" in tls
    assert (
        "it speaks TLS, but this listener is PLAINTEXT: "
        "let it connect without TLS (security.protocol=PLAINTEXT)"
    ) in tls
    assert "it speaks HTTP, but this listener is PLAINTEXT: this port is for Kafka clients" in http
    assert "it speaks SSH" in ssh
    (counted,) = (line for line in after if "more in the last" in line)
    assert "… 19 more in the last" in counted
    assert "from 127.0.0.1: it speaks TLS" in counted
    assert not any("Traceback" in line for line in before + after)


def test_json_lines(tmp_path: Path) -> None:
    with started(tmp_path, "--log-format", "json") as broker:
        broker.send(b"\x16\x03\x01\x02\x00\x01")
        broker.stop()
        entries = broker.entries
    for entry in entries:
        assert entry.keys() >= {"time", "level", "node", "logger", "message"}
    assert all(entry["node"] == 1 for entry in entries if entry["logger"].startswith("odradek.broker"))
    (closing,) = (entry for entry in entries if "TLS" in entry["message"])
    assert (closing["level"], closing["logger"]) == ("WARNING", "odradek.net.plaintext")
    assert closing["address"].startswith("127.0.0.1:")
    assert closing["time"].endswith("Z") and "T" in closing["time"]


def test_levels_of_single_loggers_and_the_environment(tmp_path: Path) -> None:
    environ = {"ODRADEK_LOG_LEVEL": "error,odradek.broker=debug", "ODRADEK_LOG_FORMAT": "json"}
    options = ("--log-level", "odradek.net=debug", "--log-level", "odradek.broker=warning")
    with started(tmp_path, *options, environ=environ) as broker:
        with broker.connect():
            pass
        broker.send(b"\xff\xff\xff\xff")
        broker.stop()
        entries = broker.entries
    assert {entry["logger"].split(".")[1] for entry in entries} == {"net"}
    assert {entry["level"] for entry in entries} == {"DEBUG", "WARNING"}


@pytest.mark.parametrize(
    ("options", "environ", "reason"),
    [
        (["--log-level", "loud"], {}, "--log-level loud: 'loud' is not a level: choose from debug, info"),
        (["--log-level", "odradek.nett=info"], {}, "'odradek.nett' is not a logger"),
        (["--log-format", "xml"], {}, "--log-format: 'xml' is not a log format: choose from text, json"),
        ([], {"ODRADEK_LOG_LEVEL": "loud"}, "ODRADEK_LOG_LEVEL loud: 'loud' is not a level"),
        ([], {"ODRADEK_LOG_FORMAT": "xml"}, "ODRADEK_LOG_FORMAT: 'xml' is not a log format"),
    ],
)
def test_what_is_not_understood(
    options: list[str], environ: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    result = run_command("up", "--port", "0", *options)
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {reason}") or f": {reason}" in result.stderr
