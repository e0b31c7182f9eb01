"""A Kafka inside your tests: a real broker, in a separate process, up in a moment and removed afterwards.

    from odradek.testing import broker

    with broker() as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})

With pytest, the fixtures `odradek_broker` and `odradek_topic` are available as soon as Odradek is installed (`plugin`).
`kafka.faults` asks for faults. docs/TESTING.md explains them, and has recipes.
"""

from odradek.testing.broker import Broker, BrokerFailed, broker
from odradek.testing.faults import Fault, Faults, Held, NotHappened

__all__ = ["Broker", "BrokerFailed", "Fault", "Faults", "Held", "NotHappened", "broker"]
