"""`odradek ledger`, on a real broker."""

import json
import re
import uuid
from zlib import crc32

import pytest
from confluent_kafka import Producer

from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings, ProduceSettings
from odradek.ledger.protocol import Adoption, Order
from odradek.ledger.topic import NAME, PARTITIONS
from odradek.ledger.writer import Writer


class NoRows:
    count = 0
    partitions = ()

    def ready(self) -> None: ...

    def rounds(self):
        yield from ()


@pytest.fixture
def sink(bootstrap) -> str:
    """A sink that has written three batches."""
    name = f"sink-{uuid.uuid4().hex[:8]}"
    host, _, port = bootstrap.partition(":")
    writer = Writer(Cluster(ClientSettings(((host, int(port)),))), name, ProduceSettings(), name="shop.rows")
    adopted: list[Adoption] = []
    for batch in range(3):
        order = Order(name, batch, f"f{batch}", adopted[0] if adopted else None)
        writer.write(order, NoRows(), adopted.append, {"compute": 5})
    return name


def test_sinks_are_listed_with_their_last_batches(odradek, sink):
    listed = {one["sink"]: one for one in json.loads(odradek("ledger", "list", "--json").stdout)}
    assert (listed[sink]["batch"], listed[sink]["name"], listed[sink]["rows"]) == (2, "shop.rows", 0)
    assert listed[sink]["phases"]["compute"] == 5
    header, *rows = odradek("ledger", "list").stdout.splitlines()
    assert header.split() == ["SINK", "NAME", "BATCH", "ROWS", "MS", "WRITTEN", "TOPICS"]
    assert any(row.startswith(sink) for row in rows)


def test_one_sink_is_shown(odradek, sink):
    shown = odradek("ledger", "show", sink).stdout
    written, took = (re.search(f"(?m)^{name}: (.*)$", shown)[1] for name in ("written", "took"))
    assert shown == (
        f"sink: {sink}\nname: shop.rows\nbatch: 2\nrows: 0\ntopics: -\nwritten: {written}\ntook: {took}\n"
        "fingerprint of what it read: f2\n"
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", written)
    assert re.fullmatch(r"\d+ ms: compute 5 ms, send \d+ ms", took)
    missing = odradek("ledger", "show", "nobody")
    assert missing.returncode == 1 and "the ledger has no sink nobody" in missing.stderr


def test_a_reset_says_which_batch_was_written_last(odradek, sink):
    assert odradek("ledger", "reset", sink, "--to", "7").returncode == 2, "nobody was asked"
    done = odradek("ledger", "reset", sink, "--to", "7", "--yes")
    assert done.stdout == f"{sink} continues after batch 7, with its next run.\n", done.stderr
    assert json.loads(odradek("ledger", "show", sink, "--json").stdout)["batch"] == 7
    odradek("ledger", "reset", sink, "--yes")
    assert odradek("ledger", "show", sink).returncode == 1


def test_a_sink_can_be_corrected_but_not_forgotten_where_the_ledger_does_not_know_it(odradek):
    forgotten = odradek("ledger", "reset", "nobody", "--yes")
    assert forgotten.returncode == 1 and "the ledger has no sink nobody" in forgotten.stderr
    name = f"sink-{uuid.uuid4().hex[:8]}"
    assert odradek("ledger", "reset", name, "--to", "2", "--yes").returncode == 0
    assert "batch: 2\n" in odradek("ledger", "show", name).stdout
    odradek("ledger", "reset", name, "--yes")


def test_a_record_that_cannot_be_read_can_be_replaced(odradek, bootstrap, sink):
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(NAME, key=sink, value=b"{}", partition=crc32(sink.encode()) % PARTITIONS)
    assert producer.flush(30) == 0
    unreadable = odradek("ledger", "list")
    assert unreadable.returncode == 1 and f"the ledger's record of {sink} cannot be read" in unreadable.stderr
    assert odradek("ledger", "reset", sink, "--to", "2", "--yes").returncode == 0
    assert "batch: 2\n" in odradek("ledger", "show", sink).stdout
