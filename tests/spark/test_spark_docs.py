"""The examples in docs/SPARK.md, and the README's with Spark, run as they stand there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def blocks_of(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)


EXAMPLES = [block for block in blocks_of(ROOT / "docs" / "SPARK.md") if "BOOTSTRAP" in block]


@pytest.fixture(scope="module")
def events(topics) -> None:
    topics.create(partitions=2, name="events")
    for name in ("shouted", "squares", "counts"):
        topics.create(partitions=1, name=name)
    topics.fill("events", [b"a", b"b", b"a", b"c"], partition=lambda index: index % 2)


def run(block: str, spark, broker, tmp_path: Path) -> None:
    exec(block, {"spark": spark, "BOOTSTRAP": broker.bootstrap, "CHECKPOINT": str(tmp_path / "checkpoint")})


def example_with(text: str) -> str:
    (found,) = [block for block in EXAMPLES if text in block]
    return found


def test_every_example_is_tested():
    assert len(EXAMPLES) == 4


def test_reading(spark, broker, events, tmp_path, capsys):
    run(example_with("spark.read.format"), spark, broker, tmp_path)
    assert capsys.readouterr().out == "4\n"


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


def test_the_readme(spark, broker, topics, tmp_path, capsys):
    (block,) = [block for block in blocks_of(ROOT / "README.md") if "pyspark" in block]
    block = block.replace("localhost:9092", broker.bootstrap).replace(
        "/tmp/shouted", str(tmp_path / "shouted")
    )
    exec(block, {})
    shown = capsys.readouterr().out
    assert "alice|  4 spools" in shown and "bob|1 crossbar" in shown
    assert sorted(one.value() for one in topics.read("shouted-purchases", 1)) == [b"1 CROSSBAR", b"4 SPOOLS"]
