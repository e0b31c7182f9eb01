"""One record to a topic, acknowledged by all in-sync replicas, or the reason why not."""

from dataclasses import dataclass
from typing import Any

from odradek.admin.access import Access
from odradek.admin.failures import AdminError, Refused
from odradek.admin.librdkafka import explain, failures_told, kafka, make_client
from odradek.admin.metadata import metadata_of
from odradek.admin.produce_cause import UNKNOWN_PARTITION, Quotas, find_cause
from odradek.console.requests import NotFound

TIMEOUT_S = 10


@dataclass(frozen=True)
class Sent:
    topic: str
    partition: int
    offset: int
    said: str


@dataclass(frozen=True)
class Outgoing:
    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None = None


def send(access: Access, record: Outgoing) -> Sent:
    try:
        metadata_of(access, [record.topic])  # producing would create the topic where that is allowed
    except Refused as error:
        raise NotFound(str(error)) from None
    quotas = Quotas()
    outcome: list[Any] = []
    settings = {
        "acks": "all",
        "message.timeout.ms": TIMEOUT_S * 1000,
        "message.max.bytes": 100_000_000,
        "throttle_cb": quotas.note,
    }
    with failures_told(access, record.topic):
        producer = make_client(access, kafka.Producer, settings)
        optional = {} if record.partition is None else {"partition": record.partition}
        producer.produce(
            record.topic,
            record.value,
            record.key,
            headers=record.headers or None,
            on_delivery=lambda error, message: outcome.append((error, message)),
            **optional,
        )
        producer.flush(TIMEOUT_S + 5)
    if not outcome:
        raise AdminError(f"{record.topic}: the cluster did not acknowledge the record in time")
    failure, message = outcome[0]
    if failure is not None:
        raise AdminError(f"{record.topic}: {_reason(access, record, failure, quotas)}")
    partition, offset = message.partition(), message.offset()
    return Sent(record.topic, partition, offset, f"Sent to {record.topic}-{partition} at offset {offset}.")


def _reason(access: Access, record: Outgoing, error: Any, quotas: Quotas) -> str:
    if error.code() != kafka.KafkaError._MSG_TIMED_OUT:
        return explain(access, error, record.topic)
    partition = UNKNOWN_PARTITION if record.partition is None else record.partition
    cause = find_cause(access, record.topic, partition, True, quotas.worst)
    return "the cluster did not acknowledge the record in time: " + (
        cause or "it looks well now, so try again"
    )
