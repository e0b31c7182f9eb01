"""Faults that must not stop a pipeline, or must be told in words that help: bad records, edits, late rows, outages."""

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from odradek.pipeline.check.checking import check
from odradek.pipeline.check.planning import KEEPS, RESET, plan
from odradek.pipeline.check.testing import all_tests, run_test
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.errors import PipelineError
from odradek.pipeline.run.held_batch import HeldReader
from odradek.pipeline.run.isolation import Range
from odradek.pipeline.run.metrics import Metrics
from odradek.pipeline.run.status import status
from tests.pipeline.lab import Lab, wait_until
from tests.pipeline.test_pipeline_process import Process, processes_of

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    "function",
    [
        "shop_functions:lucky",
        pytest.param(
            'shop_functions:lucky_batch"\nreturns = "id BIGINT, twice BIGINT',
            marks=pytest.mark.long,
            id="of batches",
        ),
    ],
)
def test_a_record_that_a_python_function_raises_on_is_set_aside(spark, lab: Lab, monkeypatch, function: str):
    monkeypatch.syspath_prepend(str(HERE))
    source, target, dead = lab.topic(2), lab.topic(1), lab.fresh_name()
    lab.fill(source, [{"id": number} for number in range(40)])
    pipeline = lab.pipeline(f"""
[sources.orders]
topic = "{source}"
schema = "id BIGINT NOT NULL"
[transforms.lucky]
function = "{function}"
inputs = ["orders"]
[sinks.out]
from = "lucky"
topic = "{target}"
[sinks.files]
from = "lucky"
path = "files"
[dead_letters]
topic = "{dead}"
partitions = 1
""")
    lab.run_well(spark, pipeline)
    good = {number: number * 2 for number in range(40) if number != 13}
    assert Counter(row["id"] for row in lab.values(target)) == Counter(good.keys()), "each once"
    assert {row.id: row.twice for row in spark.read.parquet(str(lab.directory / "files")).collect()} == good
    letters = lab.letters(dead)
    assert [json.loads(letter["raw"])["id"] for letter in letters] == [13, 13]
    assert {letter["name"] for letter in letters} == {"out", "files"}
    assert all("ValueError: 13 is unlucky" in letter["reason"] for letter in letters)


def test_a_batch_is_read_once_to_find_the_record_that_it_failed_on(spark, lab: Lab):
    """Its topic is gone by the time that parts of it are tried."""
    source = lab.topic(1)
    lab.fill(source, [{"id": number} for number in range(8)], 1)
    pipeline = lab.pipeline(f'[sources.orders]\ntopic = "{source}"\nschema = "id BIGINT"\n' + CONSOLE)
    reader = HeldReader(spark, pipeline, {"orders": [Range(source, 0, 0, 8)]})
    reader.hold()
    try:
        assert reader.records(pipeline.sources["orders"]).count() == 8
        lab.admin.delete_topics([source])[source].result(30)
        half = reader.only({"orders": [Range(source, 0, 4, 8)]})
        assert half.records(pipeline.sources["orders"]).count() == 4
    finally:
        reader.release()


CONSOLE = """
[sinks.out]
from = "orders"
console = true
"""


def test_a_record_that_a_transform_with_requirements_fails_on_does_not_stop_the_pipeline(spark, lab: Lab):
    source, target, dead = lab.topic(1), lab.topic(1), lab.fresh_name()
    amounts = [1.0, 0.0, -1.0, 2.0]
    lab.fill(source, [{"id": number, "amount": amount} for number, amount in enumerate(amounts)], 1)
    pipeline = lab.pipeline(f"""
[sources.orders]
topic = "{source}"
schema = "id BIGINT NOT NULL, amount DOUBLE"
[transforms.shares]
sql = "SELECT *, 1 / amount AS share FROM orders"
require = {{ "a share is positive" = "share > 0" }}
[sinks.out]
from = "shares"
topic = "{target}"
[dead_letters]
topic = "{dead}"
partitions = 1
limit = 1
""")
    lab.run_well(spark, pipeline)
    assert {row["id"] for row in lab.values(target)} == {0, 3}
    reasons = {int(letter["offset"]): letter["reason"] for letter in lab.letters(dead)}
    assert len(lab.letters(dead)) == 2, "both queries skip the record, and one of them wrote its dead letter"
    assert "Division by zero" in reasons[1] and reasons[2] == "a share is positive"
    assert {(one.kind, one.name): one.skipped for one in status(pipeline).queries} == {
        ("sink", "out"): 1,
        ("rejects", "orders"): 0,
        ("rejects", "shares"): 1,
    }
    lab.fill(source, [{"id": 4, "amount": 4.0}], 1)
    lab.run_well(spark, pipeline)
    assert {row["id"] for row in lab.values(target)} == {0, 3, 4}


WINDOWS = """
[sources.orders]
topic = "{source}"
schema = "item {type}, at TIMESTAMP"
watermark = {{ column = "at", delay = "1 minute" }}
[transforms.counts]
sql = '''
SELECT window(at, '1 minute').start AS minute, item, count(*) AS orders
FROM orders GROUP BY window(at, '1 minute'), item
'''
[sinks.out]
from = "counts"
topic = "{target}"
mode = "update"
key = ["minute", "item"]
"""


def test_state_of_another_type_is_found_by_the_plan_and_its_cure_is_named(spark, lab: Lab):
    names = {"source": lab.topic(1), "target": lab.topic(1)}
    lab.fill(names["source"], [{"item": 1, "at": "2026-01-01T10:00:00Z"}], 1)
    lab.run_well(spark, lab.pipeline(WINDOWS.format(**names, type="INT")))
    edited = lab.pipeline(WINDOWS.format(**names, type="BIGINT"))
    (change,) = plan(spark, check(spark, edited, offline=True))
    assert change.verdict == RESET
    assert "its types change from" in change.reasons[0] and "bigint" in change.reasons[0]
    cure = rf"Start over with 'odradek pipeline reset {edited.document.path} --sink out', or undo the edit"
    with pytest.raises(PipelineError, match=cure):
        lab.run(spark, edited)

    checkpoint = Checkpoint(edited)
    manifest = checkpoint.manifest()
    assert manifest is not None
    del manifest["sinks"]["out"]["state_types"]  # as an older version wrote it
    checkpoint.write_manifest(manifest)
    (change,) = plan(spark, check(spark, edited, offline=True))
    assert change.verdict == KEEPS
    lab.fill(names["source"], [{"item": 1, "at": "2026-01-01T10:00:00Z"}], 1)
    run = lab.run(spark, edited)
    assert run.problem is not None and run.problem.endswith(cure)


def test_rows_that_come_after_the_watermark_are_counted(spark, lab: Lab):
    names = {"source": lab.topic(1), "target": lab.topic(1)}
    pipeline = lab.pipeline(WINDOWS.format(**names, type="INT"))
    for minutes in ((0, 30), (0, 31)):
        lab.fill(names["source"], [{"item": 1, "at": f"2026-01-01T10:{one:02}:00Z"} for one in minutes], 1)
        lab.run_well(spark, pipeline)
    assert sum(one.late_at_least for one in lab.events.batches) == 1
    (message,) = [one for one in lab.events.messages if "watermark" in one]
    assert message.startswith("out: at least 1 row(s) came after the watermark, 2026-01-01T10:29:00")
    (query,) = status(pipeline).queries
    assert query.late_at_least == 1
    metrics = Metrics()
    for batch in lab.events.batches:
        metrics.take(batch)
    assert 'odradek_pipeline_late_rows_total{pipeline="pipe",query="out"} 1' in metrics.text()
    Checkpoint(pipeline).remove_query("sink", "out")
    assert Checkpoint(pipeline).late("sink", "out") == 0, "a reset forgets them"


def test_lines_of_files_that_are_no_records_are_not_counted_as_rows(spark, lab: Lab):
    incoming = lab.directory / "in"
    incoming.mkdir()
    (incoming / "a.csv").write_text("id,item\n1,a\n\n2,b\n")
    (incoming / "b.csv").write_text("ID,Item\n3,c\n")
    pipeline = lab.pipeline("""
[sources.rows]
path = "in"
format = "csv"
schema = "id BIGINT, item STRING"
options = { header = "true" }
[sinks.out]
from = "rows"
path = "out"
""")
    lab.run_well(spark, pipeline)
    assert sum(one.rows_in for one in lab.events.batches) == 3
    assert sum(one.rows_out or 0 for one in lab.events.batches) == 3


JOINED = """
[sources.orders]
topic = "{source}"
schema = "id BIGINT, item BIGINT"
[sources.books]
path = "books.csv"
format = "csv"
schema = "book BIGINT, title STRING"
static = true
[sources.prices]
path = "prices"
format = "parquet"
static = true
[transforms.priced]
sql = '''
SELECT /*+ MERGE(books) */ orders.*, id % 3 AS shop, title, price
FROM orders JOIN books ON item = book JOIN prices ON prices.priced = item
'''
[sinks.out]
from = "priced"
topic = "{target}"
key = "shop"
[dead_letters]
topic = "{dead}"
partitions = 1
[[tests]]
given.orders = [{{ id = 7, item = 1 }}]
given.books = [{{ book = 1, title = "one" }}]
given.prices = [{{ priced = 1, price = 2.5 }}]
expect.out = [{{ key = "1", value = {{ id = 7, title = "one", price = 2.5 }} }}]
"""


def test_files_as_the_static_side_of_a_join_and_the_order_of_each_key(spark, lab: Lab):
    names = {"source": lab.topic(2), "target": lab.topic(2), "dead": lab.fresh_name()}
    books = lab.directory / "books.csv"
    books.write_text("book,title\n" + "".join(f"{number},title {number}\n" for number in range(10)))
    prices = spark.createDataFrame(
        [(number, number / 2) for number in range(10)], "priced BIGINT, price DOUBLE"
    )
    prices.write.parquet(str(lab.directory / "prices"))
    orders = [{"id": number, "item": number * 7 % 10} for number in range(200)]
    for partition in (0, 1):  # every shop is in one partition, as if it were the records' key
        chosen = [order for order in orders if order["id"] % 3 % 2 == partition]
        lab.fill(names["source"], chosen, partition=partition)
    pipeline = lab.pipeline(JOINED.format(**names))
    ((document, case),) = all_tests(pipeline)
    assert run_test(spark, pipeline, document, case).problems == []
    lab.run_well(spark, pipeline)
    found: dict[bytes, list[int]] = {}
    for record in lab.records(names["target"]):
        row = json.loads(record.value())
        assert (row["title"], row["price"]) == (f"title {row['item']}", row["item"] / 2)
        assert "_offset" not in row
        found.setdefault(record.key(), []).append(row["id"])
    assert found == {
        str(shop).encode(): [number for number in range(200) if number % 3 == shop] for shop in range(3)
    }, "in the order of the records, though the join has shuffled the rows"

    books.write_text("book,title\none,title 1\n")
    lab.fill(names["source"], orders[:1], 1)
    run = lab.run(spark, pipeline)
    assert run.problem is not None and "books.csv" in run.problem, "a bad file is no bad record"
    assert not any("looking for the records" in one for one in lab.events.messages), "and none is looked for"
    assert lab.records(names["dead"]) == []


COPY = """
[sources.orders]
topic = "{source}"
format = "text"
[sinks.out]
from = "orders"
topic = "{target}"
"""


@pytest.mark.timeout(1800)
def test_a_run_says_what_it_does_and_that_java_died_and_a_rerun_continues(java, lab: Lab):
    source, target = lab.topic(1), lab.topic(1)
    lab.fill(source, [{"id": number} for number in range(5)], 1)
    path = lab.write(COPY.format(source=source, target=target))
    process = Process(lab.directory, str(path))
    try:
        wait_until(lambda: process.rows("out") >= 5, process.story, 900)
        told = [event["message"] for event in process.events if event["event"] == "message"]
        assert told[:2] == ["starting Spark", "checking the file, topics, sinks and the checkpoint"]
        assert "out: starting its query" in told
        java_processes = [
            number for number, line in processes_of(process.process.pid).items() if "SparkSubmit" in line
        ]
        for number in java_processes:
            os.kill(number, signal.SIGKILL)
        assert len(java_processes) == 1
        assert process.process.wait(120) == 1, process.story()
    finally:
        process.kill()
    last = process.events[-1]["message"]
    assert "Spark's Java process, the driver, ended unexpectedly: it was killed by signal 9" in last
    assert "it continues from the checkpoint" in last and "spark.log" in last
    assert process.log.read_text() == "", "one message, and no stack traces"
    lab.fill(source, [{"id": number} for number in range(5, 9)], 1)
    process = Process(lab.directory, str(path), "--once")
    assert process.wait() == 0, process.story()
    assert {json.loads(row["value"])["id"] for row in lab.values(target)} == set(range(9))
