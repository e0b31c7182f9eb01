"""Access to a cluster: where it is, and with which settings its clients reach it. Whoever asks a cluster for something
has one of these.

Requests go to single brokers by our own client (`requests`), which keeps its connections here; producers and consumers
are librdkafka's (`librdkafka`), with the same settings.
"""

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from odradek.admin.failures import AdminError, NoContact

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from odradek.client.connection import Connection

DEFAULT_PORT = 9092
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 10.0

CAUSES = ("_TRANSPORT", "_RESOLVE", "_SSL", "_AUTHENTICATION")  # librdkafka's names of error codes
# "ssl://localhost:9092/bootstrap: SSL handshake failed: … (after 2ms in state SSL_HANDSHAKE, 3 identical error(s) …)"
LIBRDKAFKA_REASON = re.compile(r"(?:\w+://)?(?P<address>\S+?)(?:/\w+)?: (?P<reason>.*?)(?: \(after \d+ms.*)?")
MISMATCH = re.compile(r"\bSSL\b|security\.protocol")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Kept(NamedTuple):
    """A connection that may be used again."""

    connection: "Connection"
    used_s: float


class Heard:
    """The last reports of librdkafka about its connections: the cause, if a request fails without giving one."""

    def __init__(self) -> None:
        self.cause: str | None = None
        self.is_refusal = False  # the cluster has refused our credentials: no retry can help
        self.is_mismatch = (
            False  # one side speaks TLS or SASL and the other does not: a retry is unlikely to help
        )

    def note(self, error: "KafkaError") -> None:
        """The callback for a client's errors. The longer text about one address says more than the shorter."""
        if error.name() not in CAUSES:
            return
        cause = shortened(error.str())
        self.is_mismatch |= error.name() == "_SSL" or MISMATCH.search(cause) is not None
        if error.name() == "_AUTHENTICATION":
            self.cause, self.is_refusal = cause, True
        elif not self.is_refusal and len(cause) >= len(self.cause or ""):
            self.cause = cause

    def forget(self) -> None:
        self.cause, self.is_refusal, self.is_mismatch = None, False, False


def shortened(text: str) -> str:
    """Shorten librdkafka's reason: without the protocol, the broker's role and how long it took."""
    found = LIBRDKAFKA_REASON.fullmatch(text)
    return f"{found['address']}: {found['reason']}" if found else text


@dataclass
class Access:
    bootstrap: str
    given: dict[str, str]  # the user's settings, by librdkafka's or Java's names
    client_id: str = "odradek-cli"
    warn: Callable[[str], None] = field(default=lambda warning: None)  # takes what its user should know
    heard: Heard = field(default_factory=Heard)
    kept: dict[Address, Kept] = field(default_factory=dict, repr=False)
    keep_s: float = 1.0  # a connection that was idle for longer may be closed by now
    of_controllers: dict[str, str] | None = None  # settings for controllers' listeners; None: the same ones
    place: str = ""  # where the address and the settings are written, if not in options of the command

    def servers(self) -> list[Address]:
        return addresses_of(self.bootstrap)

    def to_controllers(self) -> "Access":
        """The same cluster, for requests to its controllers' own listeners."""
        if self.of_controllers is None:
            return self
        return Access(self.bootstrap, self.of_controllers, self.client_id, self.warn)

    def unreachable(self, cause: str | None) -> str:
        """Say why there is no response, in one line."""
        place = self.place or "--command-config"
        if cause is not None:
            return f"{cause} (is {place} right for this cluster?)"
        return (
            f"no response from {self.bootstrap} in time: is it a Kafka broker, and does it require TLS or "
            f"a login (see {place})?"
        )


def read_settings(file: Path) -> dict[str, str]:
    from odradek.config.sources import parse_properties

    try:
        return parse_properties(file.read_text("utf-8"))
    except OSError as error:
        raise AdminError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise AdminError(f"{file} is not a settings file: {error}") from None


def check_reachable(bootstrap: str) -> None:
    """Raise unless something accepts connections at one of the addresses."""
    reasons = []
    for address in bootstrap.split(","):
        host, port = _host_and_port(address.strip())
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
            return
        except (OSError, UnicodeError) as error:
            reasons.append(f"{address.strip()} ({connect_reason(error)})")
    raise nobody_reached(reasons)


def nobody_reached(reasons: list[str], place: str = "") -> NoContact:
    advice = (
        f"check bootstrap.servers of {place}, and that its brokers are running"
        if place
        else "start one with 'odradek up', or name another with --bootstrap-server"
    )
    return NoContact(f"no broker reachable at {', '.join(reasons)}: {advice}", is_refused=True)


def addresses_of(bootstrap: str) -> list[Address]:
    return [Address(*_host_and_port(address.strip())) for address in bootstrap.split(",")]


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":") if not address.endswith("]") else (address, "", "")
    if not host:
        host, port = address, ""
    if port and not (port.isdecimal() and int(port) < 65536):
        raise AdminError(f"{address!r} is not an address of the form host:port")
    return host.strip("[]"), int(port) if port else DEFAULT_PORT


def connect_reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no response within {CONNECT_TIMEOUT_S:g} s"
    return (getattr(error, "strerror", None) or str(error)).lower()
