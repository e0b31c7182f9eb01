"""The same protocol on a real broker: killed at every request of a batch, and against another process."""

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.client.cluster import Cluster
from odradek.client.connection import Connection
from odradek.client.settings import ClientSettings, ProduceSettings
from odradek.client.transactions import TransactionalProducer
from odradek.ledger.protocol import Adoption, AnotherProcess, Order
from odradek.ledger.topic import Ledger
from odradek.ledger.writer import Writer
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.produce import ProduceRequest
from tests.ledger import program
from tests.ledger.program import Checkpoint, SomeRows
from tests.ledger.simulated_cluster import Crashed
from tests.spark.committed import committed_values
from tests.spark.spark_topics import Topics
from tests.support import RunningBroker, running_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[RunningBroker]:
    often = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "100"}
    with running_broker(tmp_path_factory.mktemp("broker"), **often) as broker:
        Topics(broker.bootstrap).create(partitions=2, name=program.TOPIC)
        yield broker


class Client(Cluster):
    """Dies at its `number`th request, before it is sent or after the response has come."""

    def __init__(self, broker: RunningBroker, number: int = -1, *, after: bool = False) -> None:
        host, _, port = broker.bootstrap.partition(":")
        super().__init__(ClientSettings(bootstrap=((host, int(port)),)))
        self.number, self.after = number, after
        self.requests: list[Any] = []
        self.opened = 0

    def _connection(self, host: str, port: int) -> Connection:
        connection = super()._connection(host, port)
        if not hasattr(connection, "watched"):
            self.opened += 1
            send, receive, client = connection.send, connection.receive, self

            def watched_send(request, response_type):
                client.requests.append(request)
                if not client.after and len(client.requests) == client.number + 1:
                    raise Crashed
                send(request, response_type)

            def watched_receive():
                response = receive()
                if client.after and len(client.requests) >= client.number + 1 > 0:
                    raise Crashed
                return response

            connection.send, connection.receive, connection.watched = watched_send, watched_receive, True
        return connection


def run(client: Client, sink: str, checkpoint: Checkpoint, batches: int) -> None:
    writer = Writer(client, sink, ProduceSettings())

    def adopt(adoption: Adoption) -> None:
        checkpoint.adoption = adoption

    while checkpoint.finished + 1 < batches:
        number = checkpoint.finished + 1
        order = Order(sink, number, f"read {number}", checkpoint.adoption)
        writer.write(order, Tagged(sink, number), adopt)
        checkpoint.finished = number


class Tagged(SomeRows):
    """Rows that name their sink: all tests share a topic."""

    def __init__(self, sink: str, batch: int) -> None:
        super().__init__(batch)
        self.batch = f"{sink}:{batch}"  # type: ignore[assignment]


def rows_of(broker: RunningBroker, sink: str) -> list[str]:
    """Batch and row of each visible row."""
    found = committed_values(broker.bootstrap, program.TOPIC)
    return [value.split(":")[1].rpartition("/")[0] for value in found if value.startswith(f"{sink}:")]


def every_row(batches: int) -> list[str]:
    return [f"{batch}/{row}" for batch in range(batches) for row in range(program.ROWS)]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_request(broker, after):
    """Until a life has fewer requests than that."""
    run(Client(broker), f"first-{after}", Checkpoint(), 1)  # creates what every other one finds
    killed = 0
    while True:
        sink, checkpoint = f"killed-{after}-{killed}", Checkpoint()
        client = Client(broker, killed, after=after)
        try:
            run(client, sink, checkpoint, 2)
            break
        except Crashed:
            killed += 1
        run(Client(broker), sink, checkpoint, 2)
        assert rows_of(broker, sink) == every_row(2), f"killed at {client.requests[-1]}"
        assert Ledger(Client(broker)).read(sink).batch == 1
    assert killed > 20


def test_a_second_process_stops_the_first(broker):
    first, checkpoint = Client(broker), Checkpoint()
    writer = Writer(first, "two", ProduceSettings())
    adopted: list[Adoption] = []
    writer.write(Order("two", 0, "f0"), Tagged("two", 0), adopted.append)
    checkpoint.finished, checkpoint.adoption = 0, adopted[0]
    run(Client(broker), "two", checkpoint, 2)
    with pytest.raises(AnotherProcess, match="another process has begun to write for two"):
        writer.write(Order("two", 1, "f1", adopted[0]), Tagged("two", 1), adopted.append)
    run(Client(broker), "two", checkpoint, 3)
    assert rows_of(broker, "two") == every_row(3)


class SlowRows(Tagged):
    """Rows whose sending takes longer than the transaction's timeout, the first time."""

    def __init__(self, broker: RunningBroker, sink: str) -> None:
        super().__init__(sink, 0)
        self._broker, self.tries = broker, 0

    def rounds(self):
        self.tries += 1
        first, second = super().rounds()
        yield first
        yield []  # waits for the responses of the first
        if self.tries == 1:
            committed_values(
                self._broker.bootstrap, program.TOPIC
            )  # returns once the transaction was aborted
        yield second


def test_a_batch_that_takes_longer_than_its_timeout_is_written_again(broker):
    rows = SlowRows(broker, "slow")
    writer = Writer(Client(broker), "slow", ProduceSettings(), timeout_ms=1500)
    assert writer.write(Order("slow", 0, "f"), rows, lambda _: None).is_new
    assert rows.tries == 2
    assert rows_of(broker, "slow") == every_row(1)


def test_a_life_has_one_connection_to_a_broker(broker):
    """A request to the coordinator must not interrupt one to a leader that is on the same broker."""
    client = Client(broker)
    run(client, "connected", Checkpoint(), 3)
    assert client.opened == 1


def test_partitions_that_were_not_named_before_join_the_transaction(broker):
    client = Client(broker)
    producer = TransactionalProducer(client, "late-partitions", ProduceSettings(), 60_000)
    producer.initialize()
    for records in Tagged("late", 0).rounds():
        for one in records:
            producer.send([one])
    producer.commit()
    assert rows_of(broker, "late") == every_row(1)
    assert client.opened == 1


def test_versions_are_those_of_the_older_protocol(broker):
    client = Client(broker)
    run(client, "versions", Checkpoint(), 1)
    connection = next(iter(client._connections.values()))
    assert connection.version_of(ProduceRequest.API_KEY) <= 11
    assert connection.version_of(EndTxnRequest.API_KEY) <= 4
