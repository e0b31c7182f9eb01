"""Requirements and what happens to rows that do not meet them: dropped, kept, set aside, or the end of the run."""

import json

import pytest

from odradek.client.cluster import borrow_cluster
from odradek.client.properties import parse_properties
from odradek.ledger.counts import CountsTopic
from odradek.pipeline.check.testing import all_tests, run_test
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.run.metrics import Metrics
from odradek.pipeline.run.status import status
from tests.pipeline.lab import Lab

SHOP = """
[sources.orders]
topic = "{orders}"
schema = "id BIGINT, amount DOUBLE, item STRING"
[transforms.good]
sql = "SELECT id, amount, _topic, _partition, _offset FROM orders"
[transforms.good.require]
"an amount is there" = "amount IS NOT NULL"
"an amount is small" = {{ condition = "amount < 100", action = "warn" }}
"an amount is positive" = {{ condition = "amount > 0", action = "drop" }}
"there are few orders" = {{ condition = "id < 1000", action = "fail" }}
[transforms.twice]
sql = "SELECT id FROM good UNION ALL SELECT -id FROM good"
[transforms.doubled]
sql = "SELECT id * 2 AS id FROM good"
{sinks}
[dead_letters]
topic = "{dead}"
partitions = 1
limit = 1
"""
ONE_SINK = '[sinks.out]\nfrom = "good"\nconsole = true\n'
SHARED = """
[sinks.out]
from = "good"
topic = "{out}"
partitions = 1
[sinks.both]
from = "doubled"
topic = "{both}"
partitions = 1
[sinks.again]
from = "twice"
console = true
"""
ROWS = [
    {"id": 1, "amount": 5.0},
    {"id": 2, "amount": 500.0},
    {"id": 3, "amount": -1.0},
    {"id": 4},
    {"id": 5, "amount": 700.0},
    {"id": 6, "amount": 0.0},
]
UNMET = {
    ("an amount is there", "dead_letter"): 1,
    ("an amount is small", "warn"): 3,  # a null is not small either
    ("an amount is positive", "drop"): 3,
}


def unmet_of(lab: Lab, query: str) -> dict[tuple[str, str], int]:
    """Sums up what batch events tell."""
    found: dict[tuple[str, str], int] = {}
    for batch in lab.events.batches:
        for one in batch.unmet if batch.query == query else ():
            place = (one["requirement"], one["action"])
            found[place] = found.get(place, 0) + one["rows"]
    return found


def told(lab: Lab) -> dict[str, dict[tuple[str, str], int]]:
    """Return what consoles learn, by sink: all tests have the pipeline `pipe`, so the newest totals are the last
    run's.
    """
    with borrow_cluster(parse_properties({"bootstrap.servers": lab.bootstrap}).client) as cluster:
        found = CountsTopic(cluster).entries()
    return {one.sink: {(each.requirement, each.action): each.rows for each in one.unmet} for one in found}


def test_actions_are_taken_and_counted_by_a_query_of_its_own(spark, lab: Lab):
    topics = {"orders": lab.topic(1), "dead": lab.fresh_name()}
    lab.fill(topics["orders"], ROWS, 1)
    pipeline = lab.pipeline(SHOP.format(**topics, sinks=ONE_SINK))
    lab.run_well(spark, pipeline)
    (shown,) = lab.events.shown
    assert [line.split()[0] for line in shown.splitlines()[3:]] == ["1", "2", "5"]
    assert [letter["reason"] for letter in lab.letters(topics["dead"])] == ["an amount is there"]
    assert unmet_of(lab, "out") == UNMET
    warnings = [one for one in lab.events.messages if "do not meet" in one]
    assert warnings == [
        "out: 3 row(s) of good do not meet 'an amount is small'; they are kept, and further ones are only counted"
    ]
    (query,) = [one for one in status(pipeline).queries if one.name == "out"]
    assert {(one["requirement"], one["action"]): one["rows"] for one in query.unmet} == UNMET
    assert told(lab)["out"] == UNMET
    metrics = Metrics()
    for batch in lab.events.batches:
        metrics.take(batch)
    assert (
        'odradek_pipeline_unmet_total{action="drop",pipeline="pipe",query="out",'
        'requirement="an amount is positive",stage="good"} 3'
    ) in metrics.text()
    lab.fill(topics["orders"], [{"id": 7, "amount": -1.0}], 1)
    lab.run_well(spark, pipeline)
    found = {one["requirement"]: one["rows"] for one in Checkpoint(pipeline).unmet("sink", "out")}
    assert found["an amount is positive"] == 4, "counts go on over restarts"
    assert told(lab)["out"]["an amount is positive", "drop"] == 4


def test_sinks_that_share_a_query_count_each_for_itself(spark, lab: Lab):
    topics = {"orders": lab.topic(1), "dead": lab.fresh_name()}
    sinks = SHARED.format(out=lab.fresh_name(), both=lab.fresh_name())
    lab.fill(topics["orders"], ROWS, 1)
    pipeline = lab.pipeline(SHOP.format(**topics, sinks=sinks))
    lab.run_well(spark, pipeline)
    assert Checkpoint(pipeline).groups()[0].sinks == ("out", "both")
    assert unmet_of(lab, "out") == UNMET
    assert unmet_of(lab, "both") == told(lab)["both"] == UNMET
    assert unmet_of(lab, "again").keys() == UNMET.keys(), "it reads the stage twice"
    assert [letter["reason"] for letter in lab.letters(topics["dead"])] == ["an amount is there"]


@pytest.mark.parametrize("sinks", [ONE_SINK, SHARED])
def test_a_requirement_may_end_the_run_and_names_the_record(spark, lab: Lab, sinks: str):
    topics = {"orders": lab.topic(1), "dead": lab.fresh_name()}
    sinks = sinks.format(out=lab.fresh_name(), both=lab.fresh_name())
    lab.fill(topics["orders"], [*ROWS[:2], {"id": 1000, "amount": 1.0}, {"id": 2000, "amount": -1.0}], 1)
    run = lab.run(spark, lab.pipeline(SHOP.format(**topics, sinks=sinks)))
    place = f"record {topics['orders']}-0 offset 2"
    assert run.problem is not None and f"a row ({place}) does not meet 'there are few orders'" in run.problem
    assert "dead_letters" not in run.problem
    assert lab.letters(topics["dead"]) == [], "no dead letter is made of it"


def test_actions_in_a_test_of_the_pipeline(spark, lab: Lab):
    rows = (
        json.dumps(ROWS[:4])
        .replace('": ', '" = ')
        .replace("{", "{ ")
        .replace('"id"', "id")
        .replace('"amount"', "amount")
    )
    text = (
        SHOP.format(orders="orders", dead="dead", sinks=ONE_SINK)
        + f"""
[[tests]]
given.orders = {rows}
expect.good = [{{ id = 1 }}, {{ id = 2 }}]
expect.dead_letters = [{{ reason = "an amount is there" }}]
"""
    )
    pipeline = lab.pipeline(text)
    ((document, case),) = all_tests(pipeline)
    assert run_test(spark, pipeline, document, case).problems == []
