"""A Kafka inside your tests: a real broker, in a separate process, up in a moment and removed afterwards.

    from odradek.testing import broker

    with broker() as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})

With pytest, the fixtures `odradek_broker` and `odradek_topic` are available as soon as Odradek is installed (`plugin`).
`kafka.faults` asks for faults. `cluster()` and `odradek_cluster` are the same with several brokers. docs/TESTING.md
explains them, and has recipes.
"""

from odradek.testing.broker import Broker, BrokerFailed, broker
from odradek.testing.cluster import Cluster, cluster
from odradek.testing.faults import Fault, Faults, Held, NotHappened
from odradek.testing.node import Node
from odradek.testing.patience import NotInTime
from odradek.testing.security import Login
from odradek.testing.wires import Cut

__all__ = [
    "Broker",
    "BrokerFailed",
    "Cluster",
    "Cut",
    "Fault",
    "Faults",
    "Held",
    "Login",
    "Node",
    "NotHappened",
    "NotInTime",
    "broker",
    "cluster",
]
