"""Pipelines on a real broker and a real Spark, in this process: sources, transforms, sinks, dead letters."""

import json

import pytest

from odradek.pipeline.check.checking import check
from odradek.pipeline.check.testing import all_tests, run_test
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.errors import PipelineError
from odradek.pipeline.file.examples import example
from odradek.pipeline.file.reading import load
from tests.pipeline.lab import Lab

ORDERS = """
[sources.orders]
topic = "{orders}"
schema = "id BIGINT NOT NULL, item STRING, amount DOUBLE"
"""


def orders(count: int, first: int = 0) -> list[dict]:
    return [
        {"id": number, "item": f"item {number % 3}", "amount": number / 2}
        for number in range(first, first + count)
    ]


def test_the_example_passes_its_own_tests(spark, tmp_path):
    path = tmp_path / "shop.toml"
    path.write_text(example("shop", "shop.toml", "localhost:1"))
    pipeline = load(path)
    ((document, case),) = all_tests(pipeline)
    assert run_test(spark, pipeline, document, case).problems == []


def test_topic_to_topic_and_on_from_there(spark, lab: Lab):
    source, target = lab.topic(2), lab.topic(1)
    lab.fill(source, orders(10))
    text = (
        ORDERS.format(orders=source)
        + f"""
[transforms.dear]
sql = "SELECT id, amount * 2 AS twice FROM orders WHERE amount >= 2"
[sinks.out]
from = "dear"
topic = "{target}"
key = "id"
"""
    )
    pipeline = lab.pipeline(text)
    lab.run_well(spark, pipeline)
    assert sorted(row["id"] for row in lab.values(target)) == list(range(4, 10))
    assert {one.key(): json.loads(one.value())["twice"] for one in lab.records(target)}[b"7"] == 7.0
    lab.fill(source, orders(3, first=10))
    lab.run_well(spark, pipeline)
    assert sorted(row["id"] for row in lab.values(target)) == list(range(4, 13)), "each once"
    assert any("exactly once" in message for message in lab.events.messages), "the guarantee is told"
    assert lab.events.batches[-1].lag == {source: 0} and lab.events.batches[-1].rows_out == 3


def test_bad_records_are_set_aside_with_their_reasons(spark, lab: Lab):
    source, target, dead = lab.topic(1), lab.topic(1), lab.fresh_name()
    bad = [
        b"",
        b"  ",
        b'{"id": 1} x',
        b'{"id": "x"}',
        b'{"item": "y"}',
        b"\xff",
        b"null",
        b"[]",
        b'{"id": 2}{"id": 3}',
    ]
    lab.fill(source, [{"id": 100}, *bad, None, {"id": 101}], partitions=1)
    lab.run_well(
        spark,
        lab.pipeline(
            ORDERS.format(orders=source)
            + f"""
[sinks.out]
from = "orders"
topic = "{target}"
[dead_letters]
topic = "{dead}"
partitions = 1
limit = 1
"""
        ),
    )
    assert [row["id"] for row in lab.values(target)] == [100, 101], (
        "a null value is a tombstone, no row and no error"
    )
    letters = sorted(lab.letters(dead), key=lambda letter: int(letter["offset"]))
    assert [letter["raw"] for letter in letters] == bad
    assert [letter["reason"] for letter in letters] == [
        "the value is empty",
        "the value is empty",
        "text follows after the JSON value: x",
        "field 'id' is not a whole number but \"x\"",
        "field 'id' is missing",
        "the value is not UTF-8: byte 0 is 0xff",
        "the value is not a JSON object but null",
        "the value is not a JSON object but []",
        'text follows after the JSON value: {"id": 3}',
    ]
    first = letters[0]
    assert (first["stage"], first["name"], first["topic"], first["partition"], first["offset"]) == (
        "decode", "orders", source, "0", "1",
    )  # fmt: skip
    assert first["pipeline"] == "pipe" and first["version"] and int(first["timestamp"]) > 0


def test_windows_as_upserts(spark, lab: Lab):
    source, target = lab.topic(1), lab.fresh_name()
    rows = [{"at": f"2026-01-01T10:0{minute}:30Z", "amount": 1.5} for minute in (0, 0, 1)]
    lab.fill(source, rows, partitions=1)
    pipeline = lab.pipeline(f"""
[sources.orders]
topic = "{source}"
schema = "at TIMESTAMP, amount DOUBLE"
watermark = {{ column = "at", delay = "1 minute" }}
[transforms.revenue]
sql = "SELECT window(at, '1 minute').start AS minute, sum(amount) AS total FROM orders GROUP BY window(at, '1 minute')"
[sinks.out]
from = "revenue"
topic = "{target}"
mode = "update"
key = "minute"
partitions = 1
config = {{ cleanup.policy = "compact" }}
""")
    lab.run_well(spark, pipeline)
    lab.fill(source, rows[:1], partitions=1)
    lab.run_well(spark, pipeline)
    newest = {one.key(): json.loads(one.value())["total"] for one in lab.records(target)}
    assert newest == {b"2026-01-01 10:00:00": 4.5, b"2026-01-01 10:01:00": 1.5}, "state is kept over restarts"


def test_files_in_and_files_out(spark, lab: Lab):
    incoming = lab.directory / "in"
    incoming.mkdir()
    (incoming / "a.json").write_text('{"id": 1}\n\n{"id": 2}\nbroken\n')
    pipeline = lab.pipeline("""
[sources.rows]
path = "in"
schema = "id BIGINT NOT NULL"
[sinks.parquet]
from = "rows"
path = "out/parquet"
[sinks.json]
from = "rows"
path = "out/json"
format = "json"
[sinks.csv]
from = "rows"
path = "out/csv"
format = "csv"
[dead_letters]
path = "dead"
limit = 1
""")
    lab.run_well(spark, pipeline)
    (incoming / "b.json").write_text('{"id": 3}\n')
    lab.run_well(spark, pipeline)
    out = lab.directory / "out"
    assert sorted(row.id for row in spark.read.parquet(str(out / "parquet")).collect()) == [1, 2, 3]
    assert sorted(row.id for row in spark.read.json(str(out / "json")).collect()) == [1, 2, 3]
    assert sorted(row.id for row in spark.read.schema("id INT").csv(str(out / "csv")).collect()) == [1, 2, 3]
    (letter,) = [
        json.loads(line) for path in (lab.directory / "dead").rglob("*.json") for line in path.open()
    ]
    assert letter["text"] == "broken" and letter["stage"] == "decode" and letter["file"].endswith("in/a.json")
    Checkpoint(pipeline).remove_query("decode", "rows")
    (incoming / "a.json").write_text("worse\n")
    lab.run_well(spark, pipeline)
    letters = [json.loads(line) for path in (lab.directory / "dead").rglob("*.json") for line in path.open()]
    assert {one["text"] for one in letters} == {"broken", "worse"}, (
        "a new beginning writes over no old letter"
    )


def test_a_letter_that_is_too_large_for_its_topic_is_cut(spark, lab: Lab):
    source, target, dead = lab.topic(1), lab.topic(1), lab.topic(1, max_message_bytes="20000")
    lab.fill(source, [b"x" * 30_000, {"id": 1}, b"small"], 1, key=b"k", headers=[("mine", b"y" * 100)])
    lab.run_well(
        spark,
        lab.pipeline(
            ORDERS.format(orders=source)
            + f"""
[sinks.out]
from = "orders"
topic = "{target}"
[dead_letters]
topic = "{dead}"
limit = 1
"""
        ),
    )
    assert [row["id"] for row in lab.values(target)] == [1]
    large, small = sorted(lab.letters(dead), key=lambda letter: int(letter["offset"]))
    assert (large["content"], large["raw"], large["record_key"]) == ("cut", b"x" * 5000, b"k")
    assert "the value is not JSON" in large["reason"] and "mine" not in large
    assert (small["content"], small["raw"], small["mine"]) == ("record", b"small", "y" * 100)


def test_a_record_that_a_query_fails_on_is_found_and_set_aside(spark, lab: Lab):
    source, target, dead = lab.topic(2), lab.topic(1), lab.fresh_name()
    lab.fill(source, [{"id": number, "amount": 0.0 if number == 13 else 1.0} for number in range(20)])
    run = lab.run_well(
        spark,
        lab.pipeline(
            ORDERS.format(orders=source)
            + f"""
[transforms.shares]
sql = "SELECT id, 1 / amount AS share FROM orders"
[sinks.out]
from = "shares"
topic = "{target}"
[dead_letters]
topic = "{dead}"
partitions = 1
"""
        ),
    )
    assert sorted(row["id"] for row in lab.values(target)) == sorted({*range(20)} - {13}), "each once"
    (letter,) = lab.letters(dead)
    assert json.loads(letter["raw"])["id"] == 13 and letter["stage"] == "transform"
    assert "Division by zero" in letter["reason"] and letter["offset"] == "6" and letter["partition"] == "1"
    assert run.checkpoint.skipped("sink", "out") == {"orders": {source: {"1": [6]}}}


def test_requirements_and_rows_too_large_for_a_topic(spark, lab: Lab):
    source, target, dead = lab.topic(1), lab.topic(1, max_message_bytes="2000"), lab.fresh_name()
    lab.fill(
        source,
        [{"id": 1, "amount": 1}, {"id": 2, "amount": -1}, {"id": 3, "item": "x" * 3000, "amount": 1}],
        1,
    )
    lab.run_well(
        spark,
        lab.pipeline(
            ORDERS.format(orders=source)
            + f"""
[transforms.good]
sql = "SELECT * FROM orders"
require = {{ "an amount is positive" = "amount > 0" }}
[sinks.out]
from = "good"
topic = "{target}"
[dead_letters]
topic = "{dead}"
partitions = 1
"""
        ),
    )
    assert [row["id"] for row in lab.values(target)] == [1]
    letters = {json.loads(letter["raw"])["id"]: letter for letter in lab.letters(dead)}
    assert letters[2]["stage"] == "transform" and letters[2]["reason"] == "an amount is positive"
    assert letters[2]["content"] == "record" and letters[2]["offset"] == "1", "the record itself, read again"
    assert (
        letters[3]["stage"] == "sink" and "larger than the topic allows (2000 bytes)" in letters[3]["reason"]
    )


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT\\n  nosuch FROM orders", r"pipe.toml:9: transforms.bad.sql: .*`nosuch` cannot be resolved"),
        ("SELECT FROM orders WHERE", r"pipe.toml:8: transforms.bad.sql: Syntax error"),
        (
            "SELECT * FROM ordes",
            r"pipe.toml:8: .*there is no source or transform 'ordes'; did you mean 'orders'\?",
        ),
        (
            "SELECT item, count(*) FROM orders GROUP BY item",
            r"pipe.toml:8: .*keeps a group for every key ever seen",
        ),
        ("SELECT DISTINCT id FROM orders", r"pipe.toml:8: .*every key ever seen"),
    ],
)
def test_sql_that_is_refused(spark, lab: Lab, sql: str, problem: str):
    text = (
        ORDERS.format(orders="x")
        + f'[transforms.bad]\nsql = "{sql}"\n[sinks.out]\nfrom = "bad"\nconsole = true\n'
    )
    if "\\n" in sql:
        text = text.replace(f'"{sql}"', '"""\n' + sql.replace("\\n", "\n") + '"""').replace(
            'sql = """\n', 'sql = """'
        )
    with pytest.raises(PipelineError, match=problem):
        check(spark, lab.pipeline(text), offline=True)
