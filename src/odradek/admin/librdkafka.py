"""librdkafka, for those who produce and consume: imported when something of it is used for the first time, because it
takes a quarter of the time that a command needs to start.

It retries forever and logs to the terminal. So a client is handed out only once it has reached the cluster: it asks
for metadata in short steps and looks, between them, at the errors that librdkafka reports. A failed TLS handshake or
login is reported within a second, in librdkafka's own words.
"""

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.admin.access import REQUEST_TIMEOUT_S, Access, Heard, check_reachable
from odradek.admin.client_names import to_librdkafka
from odradek.admin.failures import AdminError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

# Errors by librdkafka's names of their codes.
UNREACHABLE = ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN")
NEXT_STEPS = {
    "INVALID_RECORD": "the broker refused a message; a compacted topic takes only messages with a key "
    "(see 'odradek topic describe{subject}')",
    "UNKNOWN_TOPIC_OR_PART": "no such topic (see 'odradek topic list')",
    "_UNKNOWN_TOPIC": "no such topic (see 'odradek topic list')",
    "_UNKNOWN_PARTITION": "no such partition (see 'odradek topic describe{subject}')",
}
FIRST_CONTACT_STEP_S = 0.1
MISMATCH_PATIENCE_S = 0.5
CAUSE_PATIENCE_S = 5.0  # librdkafka may have another address of the same name to try
UNKNOWN_SETTING = re.compile(r'No such configuration property: "([^"]+)"')

Client = TypeVar("Client")
Settings = dict[str, Any]


class _Module:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


kafka: Any = _Module("confluent_kafka")


def make_client(
    cluster: Access, kind: Callable[..., Client], extra: Mapping[str, Any] | None = None
) -> Client:
    """A client that has reached the cluster. The user's settings override ours."""
    check_reachable(cluster.bootstrap)
    settings: Settings = {"client.id": cluster.client_id, "socket.connection.setup.timeout.ms": 5000}
    settings |= _given(cluster) | {"error_cb": cluster.heard.note} | dict(extra or {})
    client = _build(kind, cluster.warn, settings | {"bootstrap.servers": cluster.bootstrap})
    _wait_for_contact(cluster, client)
    return client


def _given(cluster: Access) -> Settings:
    try:
        return dict(to_librdkafka(cluster.given))
    except ValueError as error:
        raise AdminError(f"bad client settings: {error}") from None


def _build(kind: Callable[..., Client], warn: Callable[[str], None], settings: Mapping[str, Any]) -> Client:
    """A client that logs nothing, without the settings that librdkafka does not know."""
    settings = dict(settings)
    while True:
        try:
            return kind(settings, logger=_silent_logger())
        except kafka.KafkaException as error:
            unknown = UNKNOWN_SETTING.search(error.args[0].str())
            if unknown is None or settings.pop(unknown[1], None) is None:
                raise AdminError(f"bad client settings: {error.args[0].str()}") from None
            warn(f"ignoring the setting {unknown[1]}, which this client does not know")


def _silent_logger() -> logging.Logger:
    logger = logging.getLogger("odradek.admin.librdkafka")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def _wait_for_contact(cluster: Access, client: Any) -> None:
    """Ask with growing timeouts, for slow networks and large clusters, and look at librdkafka's errors in between."""
    started_s, step_s = time.monotonic(), FIRST_CONTACT_STEP_S
    while True:
        try:
            client.list_topics(timeout=step_s)
            cluster.heard.forget()
            return
        except kafka.KafkaException as error:
            client.poll(0)
            waited_s = time.monotonic() - started_s
            if waited_s >= _patience_s(cluster.heard):
                raise AdminError(explain(cluster, error.args[0])) from None
            step_s = min(2 * step_s, REQUEST_TIMEOUT_S - waited_s)


def _patience_s(heard: Heard) -> float:
    if heard.is_refusal:
        return 0.0
    if heard.is_mismatch:
        return MISMATCH_PATIENCE_S
    return REQUEST_TIMEOUT_S if heard.cause is None else CAUSE_PATIENCE_S


def explain(cluster: Access, error: "KafkaError", subject: str | None = None) -> str:
    """Say in a sentence what librdkafka's error means; `subject` is the topic that it is about."""
    if error.name() in UNREACHABLE:
        return cluster.unreachable(cluster.heard.cause)
    if error.name() in NEXT_STEPS:
        return NEXT_STEPS[error.name()].format(subject=f" {subject}" if subject else "")
    text: str = error.str().removeprefix("Broker: ").removeprefix("Local: ").strip()
    return text[:1].lower() + text[1:]


@contextmanager
def failures_told(cluster: Access, subject: str | None = None) -> Iterator[None]:
    """Turn exceptions of the client library into one line that a user understands."""
    try:
        yield
    except kafka.KafkaException as error:
        reason = explain(cluster, error.args[0], subject)
    except (ValueError, OverflowError, TypeError) as error:  # confluent-kafka checks arguments itself
        if not _is_from_confluent(error):
            raise
        reason = str(error)
    else:
        return
    raise AdminError(f"{subject}: {reason}" if subject else reason) from None


def _is_from_confluent(error: Exception) -> bool:
    """True if the innermost Python frame called into the library, or is a part of it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    return "confluent_kafka" in trace.tb_frame.f_code.co_filename
