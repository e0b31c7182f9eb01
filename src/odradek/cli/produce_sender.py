"""Send for `odradek produce`: librdkafka batches on its own thread, and we count what was delivered.

If librdkafka's queue is full, reading waits. The first message that the cluster refuses ends the command, with the
reason, because later ones would most likely fail too. If it only did not acknowledge it in time, the cluster is asked
for the cause (`produce_cause`).
"""

import sys
import time
from typing import TYPE_CHECKING, Any

from odradek.admin.access import Access
from odradek.admin.librdkafka import explain, failures_told, kafka
from odradek.admin.message_text import OutgoingMessage
from odradek.admin.produce_cause import UNKNOWN_PARTITION, Quotas, find_cause
from odradek.cli.failures import CommandError
from odradek.wording import counted

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer


FLUSH_MARGIN_S = 5
PROGRESS_INTERVAL_S = 0.2
CLEAR_LINE = "\r\x1b[K"


class Progress:
    """A line that counts, at a terminal only."""

    def __init__(self, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._next_s = 0.0

    def show(self, delivered: int, sent: int) -> None:
        if self._is_shown and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + PROGRESS_INTERVAL_S
            sys.stderr.write(
                f"{CLEAR_LINE}{counted(delivered, 'message')} delivered, {sent - delivered} in flight"
            )
            sys.stderr.flush()

    def clear(self) -> None:
        if self._is_shown:
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()


class Pace:
    """This many messages per second, evenly spread; None means no limit."""

    def __init__(self, rate: float | None) -> None:
        self._interval_s = 0.0 if rate is None else 1 / rate
        self._next_s = time.monotonic()

    def wait(self, producer: "Producer") -> None:
        if not self._interval_s:
            return
        while (left_s := self._next_s - time.monotonic()) > 0:
            producer.poll(min(left_s, PROGRESS_INTERVAL_S))
        self._next_s += self._interval_s


class Sender:
    """A producer that counts delivered messages and keeps the first failure."""

    def __init__(
        self,
        cluster: Access,
        topic: str,
        producer: "Producer",
        timeout_s: float,
        quotas: Quotas,
        acks_all: bool,
    ) -> None:
        self.topic = topic
        self.sent = 0
        self.delivered = 0
        self.failure: str | None = None
        self.producer = producer
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._acks_all = acks_all
        self._quotas = quotas

    def send(self, message: OutgoingMessage) -> None:
        optional: dict[str, Any] = {}
        if message.partition is not None:
            optional["partition"] = message.partition
        if message.timestamp_ms is not None:
            optional["timestamp"] = message.timestamp_ms
        if message.headers:
            optional["headers"] = list(message.headers)
        while True:
            self._raise_failure()
            try:
                with failures_told(self._cluster, self.topic):
                    self.producer.produce(
                        self.topic, message.value, message.key, on_delivery=self._delivered, **optional
                    )
                break
            except BufferError:
                self.producer.poll(0.1)
        self.sent += 1
        self.producer.poll(0)

    def _delivered(self, error: "KafkaError | None", message: "Message") -> None:
        if error is None:
            self.delivered += 1
        elif self.failure is None:
            self.failure = f"{self.topic}: {self._reason(error, message.partition())}"

    def _reason(self, error: "KafkaError", partition: int | None = None) -> str:
        if error.code() != kafka.KafkaError._MSG_TIMED_OUT:
            return explain(self._cluster, error, self.topic)
        partition = UNKNOWN_PARTITION if partition is None or partition < 0 else partition
        cause = find_cause(self._cluster, self.topic, partition, self._acks_all, self._quotas.worst)
        address = self._cluster.bootstrap
        return f"{address} did not acknowledge the messages in time: " + (
            cause or "the cluster looks well now, so try again (see 'odradek cluster status')"
        )

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise CommandError(self.failure)

    def finish(self) -> None:
        """Wait for messages in flight; after a failure the rest is dropped."""
        if self.failure is not None:
            self.producer.purge()
        try:
            self.producer.flush(self._timeout_s + FLUSH_MARGIN_S)
        except kafka.KafkaException as error:
            self.failure = self.failure or self._reason(error.args[0])
