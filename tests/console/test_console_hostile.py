"""Hostile requests to a console that runs, byte by byte as an attacker would send them: none succeeds."""

import json
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import odradek_command

PATIENCE_S = 30.0
HALF_OPEN = 60


class Running(NamedTuple):
    host: str  # with the port
    log: Path

    def connect(self) -> socket.socket:
        name, _, port = self.host.partition(":")
        return socket.create_connection((name, int(port)), timeout=PATIENCE_S)

    def send(self, request: bytes) -> bytes:
        """Return what comes back until the console closes the connection, or waits for more."""
        with self.connect() as connection:
            connection.sendall(request)
            if b"Connection: close" not in request:
                connection.shutdown(socket.SHUT_WR)
            response = b""
            try:
                while piece := connection.recv(65536):
                    response += piece
            except ConnectionResetError:
                pass
        return response

    def topics(self) -> list[str]:
        with urllib.request.urlopen(f"http://{self.host}/api/clusters/test/topics", timeout=30) as response:
            return [one["topic"] for one in json.load(response)["topics"]]


@pytest.fixture(scope="module")
def running(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    log = tmp_path_factory.mktemp("hostile") / "log"
    command = odradek_command("console", "-b", bootstrap, "--port", "0", "--name", "test", "--lifeline")
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        yield Running(address.removeprefix("http://").rstrip("/"), log)
        process.terminate()


def request(running: Running, line: str, *headers: str, body: bytes = b"", host: str | None = None) -> bytes:
    named = [f"Host: {running.host if host is None else host}", "Connection: close", *headers]
    return "\r\n".join([line, *named, "", ""]).encode("latin-1") + body


CREATE = b'{"topic": "made-by-an-attacker"}'
JSON = ("Content-Type: application/json", f"Content-Length: {len(CREATE)}")
POST = "POST /api/clusters/test/topics HTTP/1.1"


@pytest.mark.parametrize(
    ("line", "headers"),
    [
        (POST, JSON),
        (POST, (*JSON, "Origin: http://evil.example")),
        (POST, (*JSON, "X-CSRF-Token: guessed", "Cookie: odradek_session_8090=guessed")),
        (POST, ("Content-Type: text/plain", JSON[1])),
        (POST, (*JSON, "Transfer-Encoding: chunked")),
        (POST, (JSON[0], "Content-Length: 99999999999")),
        (POST, (JSON[0], "Content-Length: -1")),
        ("GET /api/clusters/test/topics HTTP/1.1", ("X-HTTP-Method-Override: POST", *JSON)),
        ("PUT /api/clusters/test/topics HTTP/1.1", JSON),
        ("TRACE / HTTP/1.1", ("Cookie: odradek_session_8090=x",)),
    ],
)
def test_a_change_without_a_token_is_not_made(running: Running, line: str, headers: tuple[str, ...]) -> None:
    response = running.send(request(running, line, *headers, body=CREATE))
    assert response.startswith(b"HTTP/1.1 2" if line.startswith("GET") else b"HTTP/1.1 4"), response
    assert "made-by-an-attacker" not in running.topics()


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "evil.example:8090", "", "a b"])
def test_rebinding_by_a_host_of_somebody_else(running: Running, host: str) -> None:
    response = running.send(request(running, "GET /api/session HTTP/1.1", host=host))
    assert response.split(b" ", 2)[1] in (b"421", b"400"), response[:100]
    assert b"token" not in response


@pytest.mark.parametrize(
    "text",
    [
        "GET /api/session HTTP/1.1\r\n\r\n",
        "GET /api/session HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        "GET http://evil.example/api/session HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "GET /../../../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET /static/x/..%2f..%2fapp.py HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET /static/x/%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET /c/test/topics/%ff%fe/messages HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET /c/test/topics?search=%00%ff HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET /c/test/topics?page=-1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET /c/test/topics/x?first=-5 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET /events HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nSec-Fetch-Site: cross-site\r\n\r\n",
        f"GET /{'x' * 40_000} HTTP/1.1\r\nHost: localhost\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: localhost\r\nCookie: {'x' * 40_000}\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "\x00\x00\x00\x10\x00\x12\x00\x03\x00\x00\x00\x01\x00\x00\x00\x00",
        "GET\r\n\r\n",
    ],
    ids=range(16),
)
def test_nonsense_shows_nothing_and_breaks_nothing(running: Running, text: str) -> None:
    response = running.send(text.encode("latin-1"))
    assert response[:10] in (b"HTTP/1.1 2", b"HTTP/1.1 3", b"HTTP/1.1 4"), response[:200]
    for secret in (b"root:", b"import ", b"Traceback", b'"token"'):
        assert secret not in response
    assert running.topics() is not None


def test_connections_that_say_nothing_keep_nobody_out(running: Running) -> None:
    silent = [running.connect() for _ in range(HALF_OPEN)]
    try:
        for connection in silent:
            connection.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n")
        assert running.topics() is not None
    finally:
        for connection in silent:
            connection.close()


def test_afterwards_the_log_has_no_traceback(running: Running) -> None:
    assert running.topics() is not None
    assert "Traceback" not in running.log.read_text()
