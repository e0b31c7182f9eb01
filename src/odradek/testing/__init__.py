"""A Kafka inside your tests: a real broker, in a process of its own, ready in a blink and gone afterwards.

    from odradek.testing import broker

    with broker() as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})

With pytest, the fixtures `odradek_broker` and `odradek_topic` are there as soon as Odradek is installed (`plugin`).
docs/TESTING.md has recipes.
"""

from odradek.testing.broker import Broker, BrokerFailed, broker

__all__ = ["Broker", "BrokerFailed", "broker"]
