"""Real clients under a quota: they are told of it, and wait."""

import uuid
from typing import Any

import pytest

from odradek.admin.access import Access
from odradek.admin.quotas import alter_quotas
from tests.support import RunningBroker

confluent_kafka = pytest.importorskip("confluent_kafka")


def set_quota(broker: RunningBroker, client_id: str, **quotas: float | None) -> None:
    alter_quotas(Access(broker.bootstrap, {}), {"client-id": client_id}, quotas)


def test_a_producer_of_librdkafka_is_told_that_it_is_throttled(broker: RunningBroker) -> None:
    client_id = f"slow-{uuid.uuid4().hex[:8]}"
    set_quota(broker, client_id, producer_byte_rate=20_000)
    told: list[Any] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "throttle_cb": told.append,
            "linger.ms": 0,
            "compression.type": "none",
        }
    )
    for _ in range(50):
        producer.produce(f"t-{client_id}", b"x" * 5_000)
        producer.poll(0)
        producer.flush(0.05)
    assert producer.flush(60) == 0
    assert told and max(event.throttle_time for event in told) > 0
    set_quota(broker, client_id, producer_byte_rate=None)


def test_a_consumer_of_librdkafka_gets_everything_even_so(broker: RunningBroker) -> None:
    client_id = f"slow-{uuid.uuid4().hex[:8]}"
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "none"})
    for number in range(20):
        producer.produce(client_id, str(number).encode() * 1000, partition=0)
    assert producer.flush(30) == 0
    set_quota(broker, client_id, consumer_byte_rate=2_800)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "group.id": client_id,
            "fetch.max.bytes": 20_000,
            "max.partition.fetch.bytes": 20_000,
            "message.max.bytes": 20_000,
            "receive.message.max.bytes": 100_000,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(client_id, 0, 0)])
    found: list[int] = []
    while len(found) < 20:
        message = consumer.poll(60)
        assert message is not None and not message.error(), message
        found.append(len(message.value()))
    assert found == [1000] * 10 + [2000] * 10
    consumer.close()
    set_quota(broker, client_id, consumer_byte_rate=None)
