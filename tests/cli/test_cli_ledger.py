"""`odradek ledger`, on a real broker."""

import json
import uuid

import pytest

from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings, ProduceSettings
from odradek.ledger.protocol import Adoption, Order
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
    assert f"sink: {sink}\n" in shown and "batch: 2\n" in shown and "compute 5 ms" in shown
    missing = odradek("ledger", "show", "nobody")
    assert missing.returncode == 1 and "the ledger has no sink nobody" in missing.stderr


def test_a_reset_says_which_batch_was_written_last(odradek, sink):
    assert odradek("ledger", "reset", sink, "--to", "7").returncode == 2, "nobody was asked"
    done = odradek("ledger", "reset", sink, "--to", "7", "--yes")
    assert done.stdout == f"{sink} continues after batch 7, with its next run.\n", done.stderr
    assert json.loads(odradek("ledger", "show", sink, "--json").stdout)["batch"] == 7
    odradek("ledger", "reset", sink, "--yes")
    assert odradek("ledger", "show", sink).returncode == 1
