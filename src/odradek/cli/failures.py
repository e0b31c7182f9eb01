"""Failures of client commands: one line each, with the cause and, if there is one, the next step."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from odradek.cli.librdkafka import kafka

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

# Errors by librdkafka's names of their codes.
UNREACHABLE = ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN")
CAUSES = ("_TRANSPORT", "_RESOLVE", "_SSL", "_AUTHENTICATION")

# "ssl://localhost:9092/bootstrap: SSL handshake failed: … (after 2ms in state SSL_HANDSHAKE, 3 identical error(s) …)"
LIBRDKAFKA_REASON = re.compile(r"(?:\w+://)?(?P<address>\S+?)(?:/\w+)?: (?P<reason>.*?)(?: \(after \d+ms.*)?")

MISMATCH = re.compile(r"\bSSL\b|security\.protocol")

NEXT_STEPS = {
    "UNKNOWN_TOPIC_OR_PART": "no such topic (see 'odradek topic list')",
    "_UNKNOWN_TOPIC": "no such topic (see 'odradek topic list')",
    "_UNKNOWN_PARTITION": "no such partition (see 'odradek topic describe{subject}')",
    "GROUP_ID_NOT_FOUND": "no such group (see 'odradek group list')",
    "NON_EMPTY_GROUP": "the group has active members: stop them first "
    "(see 'odradek group describe{subject} --members')",
}


class CommandError(Exception):
    """The command cannot continue; the message is the one line that its user sees."""


class Heard:
    """What librdkafka has reported about its connections: the cause, if a request fails without giving one."""

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
    """librdkafka's reason without the protocol, the broker's role and how long it took."""
    found = LIBRDKAFKA_REASON.fullmatch(text)
    return f"{found['address']}: {found['reason']}" if found else text


def explain(error: "KafkaError", bootstrap: str, heard: Heard, subject: str | None = None) -> str:
    """`subject` is the topic or the group that the error is about."""
    if error.name() in UNREACHABLE:
        if heard.cause is not None:
            return f"{heard.cause} (is --command-config right for this cluster?)"
        return (
            f"no response from {bootstrap} in time: is it a Kafka broker, and does it require TLS or "
            "a login (see --command-config)?"
        )
    if error.name() in NEXT_STEPS:
        return NEXT_STEPS[error.name()].format(subject=f" {subject}" if subject else "")
    text: str = error.str().removeprefix("Broker: ").removeprefix("Local: ").strip()
    return text[:1].lower() + text[1:]


@contextmanager
def failures_told(bootstrap: str, heard: Heard, subject: str | None = None) -> Iterator[None]:
    """Turn exceptions of the client library into one line that a user understands."""
    try:
        yield
    except kafka.KafkaException as error:
        reason = explain(error.args[0], bootstrap, heard, subject)
    except (ValueError, OverflowError, TypeError) as error:  # confluent-kafka checks arguments itself
        if not _is_from_confluent(error):
            raise
        reason = str(error)
    else:
        return
    raise CommandError(f"{subject}: {reason}" if subject else reason) from None


def _is_from_confluent(error: Exception) -> bool:
    """Whether the innermost Python frame called into the library, or is a part of it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    return "confluent_kafka" in trace.tb_frame.f_code.co_filename
