"""Clusters that cannot be reached, settings from files, and help: nothing here needs a broker."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek import __version__
from odradek.admin.client_names import to_librdkafka
from tests.support import run_command


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that refuses connections for as long as the test runs: bound, but not listened on."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    "command",
    [("topic", "list"), ("topic", "create", "t"), ("produce", "t"), ("consume", "t")],
    ids=lambda command: " ".join(command),
)
def test_no_broker_is_one_line_with_address_and_advice(command: tuple[str, ...], closed_port: int) -> None:
    result = run_command(*command, "-b", f"127.0.0.1:{closed_port}")
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == (
        f"error: no broker reachable at 127.0.0.1:{closed_port} (connection refused): "
        "start one with 'odradek up', or name another with --bootstrap-server\n"
    )


def test_a_port_that_never_answers_is_given_up(silent_port: int, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "request.timeout.ms=200\ndefault.api.timeout.ms=200\nsocket.connection.setup.timeout.ms=200\n"
    )
    result = run_command("topic", "list", "-b", f"127.0.0.1:{silent_port}", "--command-config", str(file))
    assert result.returncode == 1
    assert f"no response from 127.0.0.1:{silent_port} in time" in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_address_must_be_one() -> None:
    result = run_command("topic", "list", "-b", "localhost:kafka")
    assert (result.returncode, result.stderr) == (
        1,
        "error: 'localhost:kafka' is not an address of the form host:port\n",
    )


def test_java_names_become_librdkafkas() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="a b";'
    assert to_librdkafka(
        {
            "sasl.jaas.config": jaas,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.endpoint.identification.algorithm": "",
            "buffer.memory": "33554432",
            "linger.ms": "5",
        }
    ) == {
        "sasl.username": "me",
        "sasl.password": "a b",
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "queue.buffering.max.kbytes": "32768",
        "linger.ms": "5",
    }


def test_settings_of_a_file_are_used_and_unknown_ones_named(silent_port: int, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("key.serializer=org.example.Serializer\nacks=some\n")
    result = run_command("consume", "t", "--command-config", str(file), "-b", f"127.0.0.1:{silent_port}")
    assert result.returncode == 1
    warning, error = result.stderr.splitlines()
    assert warning == "warning: ignoring the setting key.serializer, which this client does not know"
    assert error.startswith("error: bad client settings: ")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"client.id=\\u00zz", b"request.timeout.ms=much"])
def test_a_file_that_is_none_is_told_in_one_line(content: bytes, silent_port: int, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(content)
    result = run_command("topic", "list", "--command-config", str(file), "-b", f"127.0.0.1:{silent_port}")
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_help_lists_every_command() -> None:
    result = run_command("--help")
    assert result.returncode == 0
    for name in ("up", "topic", "produce", "consume"):
        assert f" {name} " in result.stdout
    assert run_command("--version").stdout == f"odradek {__version__}\n"


def test_an_unknown_command_is_bad_usage() -> None:
    assert run_command("down").returncode == 2
    assert run_command("topic", "create").returncode == 2
