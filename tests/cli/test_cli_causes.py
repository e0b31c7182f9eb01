"""A cluster that cannot be talked to: the last line says why, in librdkafka's own words, and soon."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tests.support import running_broker

from odradek.cli.failures import Heard, shortened

Odradek = Callable[..., CompletedProcess[str]]

LOGIN = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=me\nsasl.password=x\n"


@pytest.mark.parametrize(
    ("settings", "cause"),
    [("security.protocol=SSL\n", "SSL"), (LOGIN, "SASL Handshake not supported by broker")],
    ids=["tls", "sasl"],
)
@pytest.mark.parametrize("command", [("topic", "list"), ("produce", "t"), ("consume", "t")], ids=" ".join)
def test_what_the_broker_does_not_speak_is_named(
    odradek: Odradek, tmp_path: Path, command: tuple[str, ...], settings: str, cause: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(settings)
    result = odradek(*command, "--command-config", str(file), stdin="x\n")
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: localhost:")
    assert cause in line
    assert line.endswith("(is --command-config right for this cluster?)")


def test_a_name_that_does_not_resolve_is_told(run_here: Odradek) -> None:
    result = run_here("topic", "list", "-b", "no-such-host.invalid:9092")
    assert result.returncode == 1
    assert "no broker reachable at no-such-host.invalid:9092 (" in result.stderr


def test_an_advertised_name_that_does_not_resolve_is_told(run_here: Odradek, tmp_path: Path) -> None:
    """The way to the first broker is fine; the name it gives for itself is not."""
    advertised = "PLAINTEXT://no-such-host.invalid:0"  # and the port that it got
    file = tmp_path / "client.properties"
    file.write_text("message.timeout.ms=1000\n")
    with running_broker(tmp_path, advertised_listeners=advertised) as broker:
        port = broker.bootstrap.rpartition(":")[2]
        result = run_here(
            *("produce", "t", "-b", f"localhost:{port}", "--command-config", str(file)), stdin="x\n"
        )
    assert result.returncode == 1
    assert f"no-such-host.invalid:{port}: Failed to resolve" in result.stderr.splitlines()[-1]


def test_reasons_are_shortened() -> None:
    told = (
        "ssl://localhost:9092/bootstrap: SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker "
        "listener? (after 2ms in state SSL_HANDSHAKE, 3 identical error(s) suppressed)"
    )
    assert shortened(told) == (
        "localhost:9092: SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?"
    )
    assert shortened("GroupCoordinator: localhost:9092: Disconnected (after 5ms in state UP)").endswith(
        "localhost:9092: Disconnected"
    )
    assert Heard().cause is None
