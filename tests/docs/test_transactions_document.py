"""The programs of docs/TRANSACTIONS.md, run as they stand: each is killed in the middle of its work and started again,
and every order has one invoice."""

import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import RunningBroker, running_broker

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "TRANSACTIONS.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
ADDRESS = "localhost:9092"
ORDERS = 600
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(
        tmp_path_factory.mktemp("transactions"), group_initial_rebalance_delay_ms="0"
    ) as broker:
        yield broker


class Business:
    """Topics of its own, with orders in the one and invoices in the other."""

    def __init__(self, broker: RunningBroker, program: str) -> None:
        self.bootstrap = broker.bootstrap
        name = uuid.uuid4().hex[:8]
        self.orders, self.invoices = f"orders-{name}", f"invoices-{name}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for topic in (self.orders, self.invoices):
            admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
        for old, new in (
            (ADDRESS, self.bootstrap),
            ('"orders"', f'"{self.orders}"'),
            ('"invoices"', f'"{self.invoices}"'),
            ("billing", f"billing-{name}"),
        ):
            assert old in program
            program = program.replace(old, new)
        # A hundred records at once are what a worker in a hurry takes; here the kill must find it at work.
        self.program = program.replace("100", "10")

    def send(self, topic: str, *values: str) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(30) == 0

    def worker(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-c", self.program])

    def reader(self) -> Consumer:
        reader = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "auditor", "isolation.level": "read_committed"}
        )
        reader.assign([TopicPartition(self.invoices, 0, 0)])
        return reader


def read_invoices(reader: Consumer, count: int) -> list[bytes]:
    invoices: list[bytes] = []
    while len(invoices) < count:
        message = reader.poll(PATIENCE_S)
        assert message is not None, f"only {len(invoices)} invoices"
        assert message.error() is None, message.error()
        invoices.append(message.value() or b"")
    return invoices


@pytest.mark.parametrize("program", PROGRAMS, ids=["confluent-kafka", "aiokafka"])
def test_every_order_has_one_invoice(broker: RunningBroker, program: str) -> None:
    business = Business(broker, program)
    business.send(business.orders, *map(str, range(ORDERS)))
    reader = business.reader()
    first = business.worker()
    try:
        invoices = read_invoices(reader, 50)
    finally:
        first.kill()
        first.wait()
    second = business.worker()
    try:
        invoices += read_invoices(reader, ORDERS - len(invoices))
    finally:
        second.terminate()
        second.wait()
    assert sorted(invoices) == sorted(b"invoice of %d" % number for number in range(ORDERS))
    business.send(business.invoices, "the last")
    assert read_invoices(reader, 1) == [b"the last"], "an order has a second invoice"
    reader.close()
