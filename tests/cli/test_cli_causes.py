"""A cluster that cannot be talked to: the last line says why, in librdkafka's own words, and soon."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from subprocess import CompletedProcess
from threading import Thread

import pytest

from odradek.admin.access import Heard, shortened
from odradek.errors import ErrorCode
from odradek.wire.codec import Message
from odradek.wire.frame import SIZE, encode_response, read_request_header
from odradek.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from odradek.wire.messages.index import SCHEMAS
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from odradek.wire.messages.sasl_handshake import SaslHandshakeResponse
from tests.support import running_broker

Odradek = Callable[..., CompletedProcess[str]]

LOGIN = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=me\nsasl.password=x\n"


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ("security.protocol=SSL\n", "SSL"),
        (LOGIN, "SASL PLAIN mechanism handshake failed|SASL Handshake not supported by broker"),
    ],
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
    assert any(text in line for text in cause.split("|"))  # librdkafka's words, or our client's
    assert line.endswith("(is --command-config right for this cluster?)")


@pytest.mark.parametrize("command", [("topic", "list"), ("produce", "t"), ("consume", "t")], ids=" ".join)
def test_a_wrong_password_is_named_as_the_cause(
    run_here: Odradek, tmp_path: Path, command: tuple[str, ...]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(LOGIN)
    with refusing_every_password() as address:
        result = run_here(*command, "-b", address, "--command-config", str(file), stdin="x\n")
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {address}: ")
    assert "SASL authentication error: Authentication failed: wrong user or password" in line
    assert line.endswith("(is --command-config right for this cluster?)")


@contextmanager
def refusing_every_password() -> Iterator[str]:
    """A listener that asks for a login and lets nobody in; its address."""
    with ThreadingTCPServer(("localhost", 0), RefusingListener) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"localhost:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class RefusingListener(StreamRequestHandler):
    """A broker with SASL that can only refuse clients."""

    def handle(self) -> None:
        while size := self.rfile.read(SIZE.size):
            header = read_request_header(self.rfile.read(SIZE.unpack(size)[0]))
            response = self.responses()[header.api_key]
            frame = encode_response(response, header.api_key, header.version, header.correlation_id)
            self.wfile.write(frame)

    @staticmethod
    def responses() -> dict[int, Message]:
        served = [
            ApiVersion(api_key, schema.min_version, schema.max_version) for api_key, schema in SCHEMAS.items()
        ]
        reason = "Authentication failed: wrong user or password"
        return {
            18: ApiVersionsResponse(api_keys=served),
            17: SaslHandshakeResponse(mechanisms=["PLAIN"]),
            36: SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, reason),
        }


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
