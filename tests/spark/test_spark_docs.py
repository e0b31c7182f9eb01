"""The examples in docs/SPARK.md, and the README's with Spark, run as they stand there."""

import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def blocks_of(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)


EXAMPLES = [
    block
    for block in blocks_of(ROOT / "docs" / "SPARK.md")
    if "BOOTSTRAP" in block or "odradek.spark" in block
]


@pytest.fixture(scope="module")
def events(topics) -> None:
    topics.create(partitions=2, name="events")
    for name in ("shouted", "squares", "counts", "once"):
        topics.create(partitions=1, name=name)
    topics.fill("events", [b"a", b"b", b"a", b"c"], partition=lambda index: index % 2)


def run(block: str, spark, broker, tmp_path: Path) -> dict[str, Any]:
    """The names that it leaves."""
    names = {"spark": spark, "BOOTSTRAP": broker.bootstrap, "CHECKPOINT": str(tmp_path / "checkpoint")}
    exec(block, names)
    return names


def example_with(text: str) -> str:
    (found,) = [block for block in EXAMPLES if text in block]
    return found


def test_every_example_is_tested():
    assert len(EXAMPLES) == 8


def test_a_session(spark, broker, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    names = run(example_with("odradek.spark.session"), spark, broker, tmp_path)
    assert names["spark"].sparkContext is spark.sparkContext, "the active one"


def test_a_listener(spark, broker, tmp_path):
    names = run(example_with("LagListener"), spark, broker, tmp_path)
    spark.streams.removeListener(names["listener"])
    with urllib.request.urlopen(f"http://127.0.0.1:{names['port']}/metrics") as response:
        assert b"# TYPE odradek_spark_lag_records gauge" in response.read()


def test_reading(spark, broker, events, tmp_path, capsys):
    run(example_with("spark.read.format"), spark, broker, tmp_path)
    assert capsys.readouterr().out == "4\n"


def test_typed_values(spark, broker, events, topics, tmp_path, capsys):
    topics.create(partitions=1, name="orders")
    topics.fill("orders", [b'{"id":1,"price":12.5}', b'{"id":2,"price":9}', b'{"id":3,"price":"10.01"}'])
    run(example_with("load_typed"), spark, broker, tmp_path)
    assert capsys.readouterr().out == "2\n"


def test_streaming(spark, broker, events, topics, tmp_path):
    run(example_with("commitGroup"), spark, broker, tmp_path)
    assert sorted(message.value() for message in topics.read("shouted", 1)) == [b"A", b"A", b"B", b"C"]
    assert topics.committed("spark-events", "events", 2) == {0: 2, 1: 2}


def test_writing(spark, broker, events, topics, tmp_path):
    run(example_with("squares"), spark, broker, tmp_path)
    found = {int(message.key()): int(message.value()) for message in topics.read("squares", 1)}
    assert found == {number: number * number for number in range(100)}


def test_updating(spark, broker, events, topics, tmp_path):
    run(example_with("write_updates"), spark, broker, tmp_path)
    found = {message.key(): message.value() for message in topics.read("counts", 1)}
    assert found == {b"a": b"2", b"b": b"1", b"c": b"1"}


def test_exactly_once(spark, broker, events, topics, tmp_path):
    block = example_with("import write_exactly_once")
    for _ in range(2):
        run(block, spark, broker, tmp_path)
    assert sorted(message.value() for message in topics.read("once", 1)) == [b"A", b"A", b"B", b"C"]


def test_the_readme(spark, broker, topics, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    (block,) = [block for block in blocks_of(ROOT / "README.md") if 'format("odradek")' in block]
    block = block.replace("localhost:9092", broker.bootstrap).replace(
        "/tmp/shouted", str(tmp_path / "shouted")
    )
    exec(block, {})
    shown = capsys.readouterr().out
    assert "alice|  4 spools" in shown and "bob|1 crossbar" in shown
    assert sorted(one.value() for one in topics.read("shouted-purchases", 1)) == [b"1 CROSSBAR", b"4 SPOOLS"]
