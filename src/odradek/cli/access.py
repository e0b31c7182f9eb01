"""Access to a cluster: how it is named, reached, and how a command gets it.

A cluster is named by an option before or after the command, by a profile, or by the environment; the first of these
that is given counts:

    -b after the command, -b before it, --profile, ODRADEK_BOOTSTRAP_SERVER, ODRADEK_PROFILE, the profile in use,
    localhost:9092

A command that fails says so in one line and exits, always within a bounded time. librdkafka itself retries forever and
logs to the terminal. So each command first checks whether anything listens at the address at all, then asks for
metadata in short steps and looks, between them, at the errors that librdkafka reports: a failed TLS handshake or login
is reported within a second, in librdkafka's own words.
"""

import inspect
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from odradek.cli.failures import CommandError, Heard, explain, failures_told
from odradek.cli.framework import Context, Option
from odradek.cli.java_names import to_librdkafka
from odradek.cli.librdkafka import kafka, kafka_admin
from odradek.cli.output import output_told, warn
from odradek.cli.profiles import chosen_profile, complete_profiles
from odradek.config.sources import parse_properties

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient, ClusterMetadata


DEFAULT_BOOTSTRAP = "localhost:9092"
BOOTSTRAP_VARIABLE = "ODRADEK_BOOTSTRAP_SERVER"
DEFAULT_PORT = 9092
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 10.0
FIRST_CONTACT_STEP_S = 0.1
MISMATCH_PATIENCE_S = 0.5
CAUSE_PATIENCE_S = 5.0  # librdkafka may have another address of the same name to try
UNKNOWN_SETTING = re.compile(r'No such configuration property: "([^"]+)"')

Client = TypeVar("Client")
Settings = dict[str, Any]

BootstrapServer = Annotated[
    str | None,
    Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT[,…]",
        help=f"A broker of the cluster, or several (default: {DEFAULT_BOOTSTRAP}).",
    ),
]
CommandConfig = Annotated[
    Path | None,
    Option(
        "--command-config",
        metavar="FILE",
        is_file=True,
        help="Client settings, one name=value per line, by librdkafka's or Java's names.",
    ),
]
ProfileName = Annotated[
    str | None,
    Option(
        "--profile",
        metavar="NAME",
        complete=complete_profiles,
        help="The cluster of this profile (see 'odradek profile').",
    ),
]


@dataclass(frozen=True)
class Naming:
    """The options that name a cluster, as given in one place; None if not given."""

    bootstrap: str | None = None
    command_config: Path | None = None
    profile: str | None = None


def named_cluster(command: Naming, before: Naming, environ: Mapping[str, str]) -> "Access":
    """The cluster meant by options after the command, options before it, and the environment.

    An address that is named without a profile is another cluster than that of the profile in use, so it must not get
    the credentials of that profile.
    """
    asked = command.profile or before.profile
    bootstrap = (
        command.bootstrap or before.bootstrap or (None if asked else environ.get(BOOTSTRAP_VARIABLE) or None)
    )
    settings = chosen_profile(asked, environ) if asked or bootstrap is None else {}
    file = command.command_config or before.command_config
    if file is not None:
        settings |= read_settings(file)
    return Access(bootstrap or settings.get("bootstrap.servers") or DEFAULT_BOOTSTRAP, settings)


def read_settings(file: Path) -> dict[str, str]:
    try:
        return parse_properties(file.read_text("utf-8"))
    except OSError as error:
        raise CommandError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise CommandError(f"{file} is not a settings file: {error}") from None


@dataclass
class Access:
    bootstrap: str
    given: dict[str, str]  # the user's settings, by librdkafka's or Java's names
    heard: Heard = field(default_factory=Heard)

    @cached_property
    def admin(self) -> "AdminClient":
        """An admin client that has reached the cluster."""
        return self.client(kafka_admin.AdminClient)

    def client(self, kind: Callable[..., Client], extra: Mapping[str, Any] | None = None) -> Client:
        """A client of librdkafka that has reached the cluster. The user's settings override ours."""
        check_reachable(self.bootstrap)
        settings: Settings = {"client.id": "odradek-cli", "socket.connection.setup.timeout.ms": 5000}
        settings |= self._given_to_librdkafka() | {"error_cb": self.heard.note} | dict(extra or {})
        client = _build(kind, settings | {"bootstrap.servers": self.bootstrap})
        self._wait_for_contact(client)
        return client

    def _given_to_librdkafka(self) -> Settings:
        try:
            return dict(to_librdkafka(self.given))
        except ValueError as error:
            raise CommandError(f"bad client settings: {error}") from None

    def _wait_for_contact(self, client: Any) -> None:
        """Ask with growing timeouts, for slow networks and large clusters, and look at librdkafka's errors in
        between."""
        started_s, step_s = time.monotonic(), FIRST_CONTACT_STEP_S
        while True:
            try:
                client.list_topics(timeout=step_s)
                self.heard.forget()
                return
            except kafka.KafkaException as error:
                client.poll(0)
                waited_s = time.monotonic() - started_s
                if waited_s >= self._patience_s():
                    raise CommandError(self.explain(error.args[0])) from None
                step_s = min(2 * step_s, REQUEST_TIMEOUT_S - waited_s)

    def _patience_s(self) -> float:
        if self.heard.is_refusal:
            return 0.0
        if self.heard.is_mismatch:
            return MISMATCH_PATIENCE_S
        return REQUEST_TIMEOUT_S if self.heard.cause is None else CAUSE_PATIENCE_S

    def explain(self, error: "KafkaError", subject: str | None = None) -> str:
        return explain(error, self.bootstrap, self.heard, subject)

    def failures_told(self, subject: str | None = None) -> AbstractContextManager[None]:
        return failures_told(self.bootstrap, self.heard, subject)

    def metadata(self) -> "ClusterMetadata":
        """Brokers and topics, as the cluster reports them."""
        return self.admin.list_topics(timeout=REQUEST_TIMEOUT_S)


def on_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name a cluster, and pass it that cluster as its first argument."""
    own = list(inspect.signature(command).parameters.values())[1:]

    def run(
        context: Context,
        bootstrap_server: BootstrapServer = None,
        command_config: CommandConfig = None,
        profile: ProfileName = None,
        **given: Any,
    ) -> None:
        before = context.find_root().obj or Naming()
        cluster = named_cluster(Naming(bootstrap_server, command_config, profile), before, os.environ)
        with output_told(), cluster.failures_told():
            command(cluster, **given)

    shared = [one for one in inspect.signature(run).parameters.values() if one.kind is not one.VAR_KEYWORD]
    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*own, *shared)]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _build(kind: Callable[..., Client], settings: Mapping[str, Any]) -> Client:
    """A client that logs nothing, without the settings that librdkafka does not know."""
    settings = dict(settings)
    while True:
        try:
            return kind(settings, logger=_silent_logger())
        except kafka.KafkaException as error:
            unknown = UNKNOWN_SETTING.search(error.args[0].str())
            if unknown is None or settings.pop(unknown[1], None) is None:
                raise CommandError(f"bad client settings: {error.args[0].str()}") from None
            warn(f"ignoring the setting {unknown[1]}, which this client does not know")


def _silent_logger() -> logging.Logger:
    logger = logging.getLogger("odradek.cli.librdkafka")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def check_reachable(bootstrap: str) -> None:
    """Raise unless something accepts connections at one of the addresses."""
    reasons = []
    for address in bootstrap.split(","):
        host, port = _host_and_port(address.strip())
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
            return
        except (OSError, UnicodeError) as error:
            reasons.append(f"{address.strip()} ({_reason(error)})")
    raise CommandError(
        f"no broker reachable at {', '.join(reasons)}: "
        "start one with 'odradek up', or name another with --bootstrap-server"
    )


def addresses_of(bootstrap: str) -> list[tuple[str, int]]:
    return [_host_and_port(address.strip()) for address in bootstrap.split(",")]


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":") if not address.endswith("]") else (address, "", "")
    if not host:
        host, port = address, ""
    if port and not (port.isdecimal() and int(port) < 65536):
        raise CommandError(f"{address!r} is not an address of the form host:port")
    return host.strip("[]"), int(port) if port else DEFAULT_PORT


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no response within {CONNECT_TIMEOUT_S:g} s"
    return (getattr(error, "strerror", None) or str(error)).lower()


def settle(futures: Any) -> None:
    """Wait for the futures of an admin request; raise the first failure."""
    for future in futures.values():
        future.result(REQUEST_TIMEOUT_S)
