"""A broker whose disk becomes full at any step of a batch: the batch fails or waits, and is there once afterwards."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from odradek.client.cluster import Cluster
from odradek.client.deadline import TimedOut
from odradek.client.settings import ClientSettings, ProduceSettings
from odradek.errors import KafkaError
from odradek.ledger import protocol as steps
from odradek.ledger.protocol import Adoption, Order
from odradek.ledger.writer import CARRIED_OUT, Writer
from tests.ledger import program
from tests.ledger.test_ledger_broker import Tagged, every_row, rows_of
from tests.processes.disk_faults import fill, small_disks
from tests.spark.spark_topics import Topics
from tests.support import RunningBroker

SINK = "full"
STEPS = (steps.Initialize, steps.ReadLedger, steps.Send, steps.Record, steps.Commit)


@pytest.fixture
def broker(tmp_path) -> Iterator[RunningBroker]:
    with small_disks(tmp_path, range(1)) as mounted:
        if not mounted:
            pytest.skip("no file system can be mounted here")
        broker = RunningBroker(tmp_path / "node-0", {})
        with closing(broker.port):
            broker.start()
            try:
                Topics(broker.bootstrap).create(partitions=2, name=program.TOPIC)
                yield broker
            finally:
                broker.kill()


def client_of(broker: RunningBroker) -> Cluster:
    host, _, port = broker.bootstrap.partition(":")
    return Cluster(ClientSettings(((host, int(port)),), api_timeout_s=2))


@pytest.mark.long
def test_a_disk_that_becomes_full_before_any_step(broker, tmp_path, monkeypatch):
    ballast, adopted = tmp_path / "node-0" / "ballast", list[Adoption]()
    failures = []

    def write(batch: int) -> None:
        with closing(client_of(broker)) as client:
            writer = Writer(client, SINK, ProduceSettings(delivery_timeout_s=2))
            order = Order(SINK, batch, f"f{batch}", adopted[0] if adopted else None)
            writer.write(order, Tagged(SINK, batch), adopted.append)

    write(0)
    for batch, step in enumerate(STEPS, 1):

        def carry_out(self, one, carried_out=CARRIED_OUT[step]):
            if not ballast.exists():
                fill(ballast)
            return carried_out(self, one)

        with monkeypatch.context() as patch:
            patch.setitem(CARRIED_OUT, step, carry_out)
            try:
                write(batch)
            except (TimedOut, KafkaError) as error:
                failures.append(str(error))
        ballast.unlink()
        write(batch)
        assert rows_of(broker, SINK) == every_row(batch + 1), step
    assert failures
