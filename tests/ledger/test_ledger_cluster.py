"""The same protocol on a cluster of three real brokers, of which one is killed at each step of a batch."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from odradek.client.cluster import Cluster as Client
from odradek.client.settings import ClientSettings, ProduceSettings
from odradek.ledger import protocol as steps
from odradek.ledger.protocol import Adoption, Order
from odradek.ledger.topic import NAME, TRANSACTIONAL_ID, Ledger
from odradek.ledger.writer import CARRIED_OUT, Writer
from odradek.testing import Cluster, Node, cluster
from tests.ledger import program
from tests.ledger.test_ledger_broker import Tagged, every_row, rows_of
from tests.pipeline.lab import wait_until

SINK = "survivor"


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with cluster(3, default_replication_factor=1) as three:
        three.create_topic(program.TOPIC, partitions=2, replicas=[[1, 2, 3], [2, 3, 1]])
        yield three


def client_of(three: Cluster) -> Client:
    addresses = tuple(
        (one.partition(":")[0], int(one.partition(":")[2])) for one in three.bootstrap.split(",")
    )
    return Client(ClientSettings(addresses, request_timeout_s=5))


def coordinator(three: Cluster) -> Node:
    return three.transaction_coordinator(TRANSACTIONAL_ID + SINK)


def leader_of_rows(three: Cluster) -> Node:
    return three.leader(program.TOPIC, 0)


def leader_of_the_ledger(three: Cluster) -> Node:
    partition = Ledger(client_of(three)).partition_of(SINK)
    return three.leader(partition.topic, partition.partition)


def test_the_ledger_has_three_replicas_whatever_other_topics_have(three):
    """Also if one broker is away. And two of them have a record before it counts: what one broker alone lost, would be
    written again."""
    admin = AdminClient({"bootstrap.servers": three.bootstrap})
    three[3].crash()
    wait_until(lambda: len(admin.list_topics(timeout=30).brokers) == 2, lambda: "it is still active", 60)
    Ledger(client_of(three)).ensure()
    three[3].start()
    three.wait_until_in_sync()
    (ledger,) = admin.list_topics(NAME, timeout=30).topics.values()
    assert {len(one.replicas) for one in ledger.partitions.values()} == {3}
    (described,) = admin.describe_configs([ConfigResource("topic", NAME)]).values()
    assert described.result(30)["min.insync.replicas"].value == "2"


VICTIMS = (coordinator, leader_of_rows, leader_of_the_ledger)
KILLS = [
    (steps.Initialize, coordinator),
    (steps.ReadLedger, leader_of_the_ledger),
    *((step, find) for step in (steps.Send, steps.Record, steps.Commit) for find in VICTIMS),
]


def test_a_broker_is_killed_before_each_step(three, monkeypatch):
    adopted = list[Adoption]()
    Writer(client_of(three), SINK, ProduceSettings()).write(
        Order(SINK, 0, "f0"), Tagged(SINK, 0), adopted.append
    )
    writer = Writer(client_of(three), SINK, ProduceSettings())
    for batch, (step, find) in enumerate(KILLS, 1):
        if step is steps.ReadLedger:  # only a new process begins there
            writer = Writer(client_of(three), SINK, ProduceSettings())
        killed: list[Node] = []

        def carry_out(self, one, carried_out=CARRIED_OUT[step], find=find, killed=killed):
            if not killed:
                killed.append(find(three))
                killed[0].crash()
            return carried_out(self, one)

        with monkeypatch.context() as patch:
            patch.setitem(CARRIED_OUT, step, carry_out)
            order = Order(SINK, batch, f"f{batch}", adopted[0])
            assert writer.write(order, Tagged(SINK, batch), adopted.append).is_new
        killed[0].start()
        three.wait_until_in_sync()
    batches = len(KILLS) + 1
    assert sorted(rows_of(three, SINK)) == sorted(every_row(batches))
    restarted = Writer(client_of(three), SINK, ProduceSettings())
    order = Order(SINK, batches - 1, f"f{batches - 1}", adopted[0])
    assert not restarted.write(order, Tagged(SINK, batches - 1), adopted.append).is_new
