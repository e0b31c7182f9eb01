"""What every client command shares: how a cluster is named, reached, and how failure is told.

A command that cannot do its work says so in one line and ends, always within a bounded time. librdkafka
by itself retries for ever and logs to the terminal, so each command first looks whether anything listens
at the address at all (which also gives the honest reason at once), and librdkafka's log goes nowhere.
"""

import logging
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from odradek.cli.java_names import to_librdkafka
from odradek.config.sources import parse_properties

DEFAULT_BOOTSTRAP_SERVER = "localhost:9092"
DEFAULT_PORT = 9092
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 10.0
MISSING = "-"
UNKNOWN_SETTING = re.compile(r'No such configuration property: "([^"]+)"')

Client = TypeVar("Client")
Settings = dict[str, Any]

BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="ODRADEK_BOOTSTRAP_SERVER",
        metavar="HOST:PORT[,…]",
        help="A broker of the cluster, or several.",
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Client settings, name=value a line; Java's names are understood.",
    ),
]
TopicOption = Annotated[str | None, typer.Option("--topic", hidden=True)]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class CommandError(Exception):
    """The command cannot go on; the message is the one line its user reads."""


def warn(message: str) -> None:
    typer.echo(f"warning: {message}", err=True)


def count_of_messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def print_columns(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Text in columns, as wide as they must be; what there is not shows as a dash."""
    table = [header, *([MISSING if cell in (None, "") else str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def chosen_topic(argument: str | None, option: str | None) -> str:
    """The topic's name, given as Kafka's tools want it (`--topic NAME`) or as an argument."""
    name = argument or option
    if not name:
        raise typer.BadParameter("name a topic", param_hint="TOPIC")
    return name


def key_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not of the form name=value")
    return name, value


def settings_for(bootstrap_server: str, command_config: Path | None) -> Settings:
    """Settings every client starts from. What the user's file says wins over ours."""
    settings: Settings = {"client.id": "odradek-cli", "socket.connection.setup.timeout.ms": 5000}
    if command_config is not None:
        settings |= to_librdkafka(parse_properties(command_config.read_text()))
    settings["bootstrap.servers"] = bootstrap_server
    return settings


def build(kind: Callable[..., Client], settings: Mapping[str, Any]) -> Client:
    """A client of librdkafka that keeps quiet, without the settings that librdkafka does not know."""
    settings = dict(settings)
    while True:
        try:
            return kind(settings, logger=_silent_logger())
        except KafkaException as error:
            unknown = UNKNOWN_SETTING.search(error.args[0].str())
            if unknown is None or settings.pop(unknown[1], None) is None:
                raise CommandError(f"bad client settings: {error.args[0].str()}") from None
            warn(f"setting {unknown[1]} is not known to this client and is ignored")


def _silent_logger() -> logging.Logger:
    logger = logging.getLogger("odradek.cli.librdkafka")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def connect(bootstrap_server: str, command_config: Path | None) -> AdminClient:
    check_reachable(bootstrap_server)
    return build(AdminClient, settings_for(bootstrap_server, command_config))


def check_reachable(bootstrap_server: str) -> None:
    """Raise unless something accepts connections at one of the addresses."""
    reasons = []
    for address in bootstrap_server.split(","):
        host, port = _host_and_port(address.strip())
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
            return
        except OSError as error:
            reasons.append(f"{address.strip()} ({_reason(error)})")
    raise CommandError(
        f"no broker reachable at {', '.join(reasons)}: "
        "start one with 'odradek up', or name another with --bootstrap-server"
    )


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":") if not address.endswith("]") else (address, "", "")
    if not host:
        host, port = address, ""
    if port and not port.isdigit():
        raise CommandError(f"{address!r} is not an address of the form host:port")
    return host.strip("[]"), int(port) if port else DEFAULT_PORT


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_TIMEOUT_S:g} s"
    return (error.strerror or str(error)).lower()


def cluster_metadata(client: Any, topic: str | None = None) -> ClusterMetadata:
    """Brokers and topics as the cluster tells them; of one topic only where one is named."""
    arguments = {} if topic is None else {"topic": topic}
    return client.list_topics(timeout=REQUEST_TIMEOUT_S, **arguments)


def partition_ids(client: Any, topic: str) -> list[int]:
    known = cluster_metadata(client, topic).topics[topic]
    if known.error is not None:
        raise KafkaException(known.error)
    return sorted(known.partitions)


@contextmanager
def failures_told(bootstrap_server: str, subject: str | None = None) -> Iterator[None]:
    """Turn what the client library raises into the one line that a user understands."""
    try:
        yield
    except KafkaException as error:
        reason = explain(error.args[0], bootstrap_server)
        raise CommandError(f"{subject}: {reason}" if subject else reason) from None


def explain(error: KafkaError, bootstrap_server: str) -> str:
    if error.code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN):
        return (
            f"no answer from {bootstrap_server} in time: is it a Kafka broker, and does it ask for TLS or "
            "a login (see --command-config)?"
        )
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return "no such topic (see 'odradek topic list')"
    if error.code() == KafkaError._UNKNOWN_PARTITION:
        return "no such partition (see 'odradek topic describe')"
    if error.code() == KafkaError.GROUP_ID_NOT_FOUND:
        return "no such group (see 'odradek group list')"
    if error.code() == KafkaError.NON_EMPTY_GROUP:
        return "the group has active members: stop them first (see 'odradek group describe --members')"
    text: str = error.str().removeprefix("Broker: ").removeprefix("Local: ").strip()
    return text[:1].lower() + text[1:]
