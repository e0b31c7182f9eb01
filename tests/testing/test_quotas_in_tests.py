"""A broker for tests applies quotas too: a program can be tested under one."""

from typing import Any

from confluent_kafka import Producer

from odradek.admin.access import Access
from odradek.admin.quotas import alter_quotas
from odradek.testing import broker


def test_a_producer_is_throttled() -> None:
    with broker() as kafka:
        alter_quotas(Access(kafka.bootstrap, {}), {"client-id": None}, {"producer_byte_rate": 20_000})
        told: list[Any] = []
        producer = Producer(
            {"bootstrap.servers": kafka.bootstrap, "throttle_cb": told.append, "linger.ms": 0}
        )
        for number in range(50):
            producer.produce("t", str(number).encode() * 3_000)
            producer.flush(0.05)
        assert producer.flush(60) == 0 and told
