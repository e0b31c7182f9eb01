"""Spark's own connectors beside our lake sinks: they read what was written, and continue a Delta table and its
checkpoint, as ours continues theirs."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from odradek.pipeline.kinds.lake.iceberg import IcebergLakeTable
from tests.pipeline.lab import Lab
from tests.pipeline.lakes import delta_rows, iceberg_catalog
from tests.pipeline.test_lake_sinks import SINKS, UPSERT, checkpoint_of, copy_of, ids, orders
from tests.spark.committed import forget_last_commit
from tools.peer.kafka import PeerUnavailable
from tools.spark_jars import ICEBERG_SPARK, iceberg_jars, older_pyspark


@pytest.fixture
def lab(broker, tmp_path: Path) -> Lab:
    return Lab(broker.bootstrap, tmp_path)


def read(spark: Any, lab: Lab) -> Any:
    """The newest version, by Delta's connector."""
    return spark.read.format("delta").load(str(lab.directory / "lake" / "orders"))


def read_iceberg(lab: Lab, *conditions: str) -> list[dict[str, Any]]:
    """The newest version, by Iceberg's connector, which fits another PySpark."""
    table = IcebergLakeTable("shop.orders", iceberg_catalog(lab.directory / "warehouse"), {})
    assert table.look() is not None
    try:
        jars, packages = iceberg_jars(), older_pyspark(ICEBERG_SPARK)
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    program = str(Path(__file__).with_name("read_iceberg.py"))
    command = [sys.executable, program, ",".join(map(str, jars)), table._open.metadata_location, *conditions]
    environ = os.environ | {"PYTHONPATH": str(packages), "PYSPARK_PYTHON": sys.executable}
    environ.pop("SPARK_HOME", None)
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


NESTED = "id BIGINT, item STRING, tags ARRAY<STRING>, facts MAP<STRING, INT>, place STRUCT<at: TIMESTAMP>"


def write_in_two_shapes(spark: Any, lab: Lab, form: str) -> None:
    """Partitions, nested types, and a column that is added."""
    topic, sink = lab.topic(1), SINKS[form] + '\npartition_by = "item"'
    nested = {"tags": ["x"], "facts": {"b": 1}, "place": {"at": "2026-01-01T00:00:00Z"}}
    lab.fill(topic, [{"id": 1, "item": "a"} | nested], 1)
    lab.run_well(spark, copy_of(lab, topic, sink, schema=NESTED))
    lab.fill(topic, [{"id": 2, "item": "b", "price": 2.5}, {"id": 3, "price": None}], 1)
    lab.run_well(spark, copy_of(lab, topic, sink, schema=f"{NESTED}, price DOUBLE"))


def test_deltas_connector_reads_partitions_nested_types_and_added_columns(spark, lab: Lab):
    write_in_two_shapes(spark, lab, "delta")
    found = {row.id: row for row in read(spark, lab).collect()}
    assert {number: row.item for number, row in found.items()} == {1: "a", 2: "b", 3: None}
    assert (found[1].tags, found[1].facts, found[1].price) == (["x"], {"b": 1}, None)
    assert found[2].price == 2.5
    assert read(spark, lab).where("item = 'b' AND id < 3").count() == 1


def test_icebergs_connector_reads_partitions_nested_types_and_added_columns(spark, lab: Lab):
    write_in_two_shapes(spark, lab, "iceberg")
    found = {row["id"]: row for row in read_iceberg(lab)}
    assert {number: row.get("item") for number, row in found.items()} == {1: "a", 2: "b", 3: None}
    assert (found[1]["tags"], found[1]["facts"], found[2]["price"]) == (["x"], {"b": 1}, 2.5)
    assert found[1]["place"] == {"at": "2026-01-01T00:00:00.000Z"}
    assert [row["id"] for row in read_iceberg(lab, "item = 'b' AND id < 3")] == [2]


def test_sparks_connector_reads_upserts_and_compacted_files(spark, lab: Lab, monkeypatch):
    from odradek.pipeline.kinds.lake import delta

    monkeypatch.setattr(delta, "SMALL_FILES", 2)
    topic = lab.topic(1)
    pipeline = copy_of(lab, topic, UPSERT.replace("delete_when", "# delete_when"))
    for item in "abc":
        lab.fill(topic, [{"id": number, "item": item} for number in range(3)], 1)
        lab.run_well(spark, pipeline)
    assert Counter(row.item for row in read(spark, lab).collect()) == {"c": 3}


def test_either_continues_what_the_other_wrote_to_a_delta_table(spark, lab: Lab):
    """Both use one checkpoint; and a batch that one has written is no news to the other."""
    topic = lab.topic(1)
    ours = SINKS["delta"]
    theirs = ours + '\nconnector = "spark"'
    written = 0
    for sink in (ours, theirs, ours, theirs, ours):
        lab.fill(topic, orders(written), 1)
        written += 1
        lab.run_well(spark, copy_of(lab, topic, sink))
    for sink in (theirs, ours, theirs):  # the last batch is the other's each time
        forget_last_commit(checkpoint_of(lab))
        lab.fill(topic, orders(written), 1)
        written += 1
        lab.run_well(spark, copy_of(lab, topic, sink))
    assert ids(lab, "delta") == list(range(written))
    assert sorted(row.id for row in read(spark, lab).collect()) == list(range(written))


def test_spark_updates_and_deletes_rows_between_our_batches(spark, lab: Lab):
    topic = lab.topic(1)
    pipeline = copy_of(lab, topic, SINKS["delta"])
    lab.fill(topic, orders(*range(4)), 1)
    lab.run_well(spark, pipeline)
    place = lab.directory / "lake" / "orders"
    spark.sql(f"DELETE FROM delta.`{place}` WHERE id = 1")
    spark.sql(f"UPDATE delta.`{place}` SET item = 'theirs' WHERE id = 2")
    lab.fill(topic, orders(4), 1)
    lab.run_well(spark, pipeline)
    assert {row["id"]: row["item"] for row in delta_rows(place)} == {
        0: "item 0",
        2: "theirs",
        3: "item 0",
        4: "item 1",
    }
