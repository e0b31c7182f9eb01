"""Sinks that share a query: what they write, what fails, who leaves, and what is said about it."""

import contextlib
import io
import json

from odradek.pipeline.check.sharing import candidates
from odradek.pipeline.check.weaving import StreamReader, Weaver
from odradek.pipeline.kinds.topic_sink import TopicSinkKind
from odradek.pipeline.run.explaining import explain
from odradek.pipeline.run.outputs import Output
from odradek.pipeline.run.status import status
from odradek.pipeline.session import new_session
from tests.pipeline.lab import Lab, at_least_once

SHOP = """
[sources.orders]
topic = "{orders}"
schema = "id BIGINT NOT NULL, amount DOUBLE"

[transforms.good]
sql = "SELECT * FROM orders"
require = {{ "an amount is positive" = "amount > 0" }}

[transforms.shares]
sql = "SELECT id, assert_true(id != 13) AS sure, 100 / amount AS share FROM good WHERE amount > 10"

[transforms.totals]
sql = "SELECT id % 2 AS odd, sum(amount) AS total FROM good GROUP BY id % 2"

[sinks.good]
from = "good"
topic = "{good}"
partitions = 1

[sinks.shares]
from = "shares"
topic = "{shares}"
partitions = 1
key = "id"

[sinks.totals]
from = "totals"
topic = "{totals}"
partitions = 1
mode = "update"
key = "odd"
bounded_keys = true

[dead_letters]
topic = "{dead}"
partitions = 1
"""


def shop(lab: Lab) -> dict[str, str]:
    topics = {name: lab.fresh_name() for name in ("good", "shares", "totals", "dead")}
    return topics | {"orders": lab.topic(2)}


def ids(lab: Lab, topic: str) -> list[int]:
    return sorted(row["id"] for row in lab.values(topic))


def distinct(lab: Lab, topic: str) -> list[int]:
    """A failed sink without transactions repeats rows: other tasks had written theirs before the batch ran again."""
    return sorted(set(ids(lab, topic)))


def queries_started(lab: Lab) -> list[str]:
    return [
        text.removesuffix(": starting its query") for text in lab.events.messages if "starting its" in text
    ]


def test_topics_and_their_dead_letters_share_a_query_until_a_sink_leaves_it(spark, lab: Lab, monkeypatch):
    topics = shop(lab)
    file = at_least_once(SHOP.format(**topics))
    orders = [{"id": number, "amount": float(number)} for number in range(1, 21)]
    lab.fill(topics["orders"], [*orders, {"id": 21, "amount": -1.0}, b"not JSON"])
    pipeline = lab.pipeline(file)
    written = []
    write = Output.write
    monkeypatch.setattr(Output, "write", lambda self, *rest: written.append(self.label) or write(self, *rest))

    lab.run_well(spark, pipeline)

    # Each is written once. What one sink fails on, order 13, is set aside for that sink alone, and the others do not
    # write their rows again.
    assert ids(lab, topics["good"]) == list(range(1, 21))
    assert distinct(lab, topics["shares"]) == [number for number in range(11, 21) if number != 13]
    assert written.count("good") == 1 and written.count("shares") == 2
    letters = sorted((one["stage"], one["name"], one["raw"]) for one in lab.letters(topics["dead"]))
    assert [(stage, name) for stage, name, _ in letters] == [
        ("decode", "orders"),
        ("transform", "good"),
        ("transform", "shares"),
    ]
    assert [json.loads(raw)["id"] for _, _, raw in letters[1:]] == [21, 13]
    together = "good + shares + rejects of orders + rejects of good"
    assert set(queries_started(lab)) == {together, "totals"}

    # Reports are by sink.
    newest = {one.query: one for one in lab.events.batches if one.rows_in}
    assert {one: (newest[one].kind, newest[one].rows_in, newest[one].rows_out) for one in newest} == {
        "good": ("sink", 22, 20),
        "shares": ("sink", 22, 9),
        "rejects of orders": ("decode", 22, 22),
        "rejects of good": ("transform", 22, 21),
        "totals": ("sink", 22, 2),
    }
    assert [newest[f"rejects of {one}"].rejected for one in ("orders", "good")] == [1, 1]
    found = {one.name: one for one in status(pipeline).queries if one.kind == "sink"}
    assert found["shares"].shares_with == ["good", "rejects of orders", "rejects of good"]
    assert found["shares"].lag == found["totals"].lag == {topics["orders"]: 0}
    assert (found["shares"].skipped, found["good"].skipped, found["totals"].shares_with) == (1, 0, [])

    # `explain` says so, too.
    said: list[str] = []
    with contextlib.redirect_stdout(io.StringIO()) as plans:
        explain(spark, pipeline, "simple", said.append)
    assert (
        said[0] == "good, shares, rejects of orders, rejects of good share a query, which reads orders once"
    )
    assert "totals has its own query" in said[1] and plans.getvalue().count("Physical Plan") == 6

    # A sink that leaves continues where the group was.
    lab.fill(topics["orders"], [{"id": 30, "amount": 30.0}])
    lab.events.messages.clear()
    alone = lab.pipeline(file.replace('key = "id"', 'key = "id"\nown_query = true'))
    lab.run_well(spark, alone)
    assert ids(lab, topics["good"])[-2:] == [20, 30]
    assert distinct(lab, topics["shares"]) == [11, 12, *range(14, 21), 30]
    assert len(lab.letters(topics["dead"])) == 3
    assert set(queries_started(lab)) == {together.replace(" + shares", ""), "shares", "totals"}


ONE_SINK = """
[sources.orders]
topic = "{orders}"
schema = "id BIGINT NOT NULL, amount DOUBLE"

[transforms.good]
sql = "SELECT * FROM orders"
require = {{ "an amount is positive" = "amount > 0" }}

[sinks.good]
from = "good"
topic = "{good}"
partitions = 1

[dead_letters]
topic = "{dead}"
partitions = 1
"""


def test_one_sink_and_its_dead_letters_need_one_pass_and_keep_no_batch_unless_rows_are_rejected(
    spark, lab: Lab, monkeypatch
):
    topics = shop(lab)
    pipeline = lab.pipeline(ONE_SINK.format(**topics))
    kept = []
    frames = type(spark.range(1))
    persist = frames.persist
    monkeypatch.setattr(frames, "persist", lambda self, *rest: kept.append(1) or persist(self, *rest))

    def run(orders: list[object]) -> dict[str, tuple[int, int | None, int | None]]:
        kept.clear()
        lab.events.batches.clear()
        lab.fill(topics["orders"], orders)
        lab.run_well(spark, pipeline)
        return {
            one.query: (one.rows_in, one.rows_out, one.rejected) for one in lab.events.batches if one.rows_in
        }

    assert run([{"id": number, "amount": 1.0} for number in range(10)]) == {
        "good": (10, 10, None),
        "rejects of orders": (10, 10, 0),
        "rejects of good": (10, 10, 0),
    }
    assert not kept

    # What is rejected is read again, and each record still counts once.
    assert run([{"id": 10, "amount": 1.0}, {"id": 11, "amount": -1.0}, b"not JSON"]) == {
        "good": (3, 1, None),
        "rejects of orders": (3, 3, 1),
        "rejects of good": (3, 2, 1),
    }
    assert ids(lab, topics["good"]) == list(range(11))
    letters = [(one["stage"], one["raw"]) for one in lab.letters(topics["dead"])]
    assert sorted(letters) == [("decode", b"not JSON"), ("transform", b'{"id": 11, "amount": -1.0}')]


def test_rejected_rows_are_found_below_a_filter_that_no_row_meets(spark, lab: Lab):
    """Spark leaves out what is below such a filter, and counts nothing there."""
    topics = shop(lab)
    none = '[transforms.none]\nsql = "SELECT * FROM good WHERE 1 = 0"\n[sinks.good]\nfrom = "none"'
    pipeline = lab.pipeline(ONE_SINK.format(**topics).replace('[sinks.good]\nfrom = "good"', none))
    lab.fill(topics["orders"], [{"id": 1, "amount": 1.0}, {"id": 2, "amount": -1.0}, b"not JSON"])
    lab.run_well(spark, pipeline)
    assert lab.records(topics["good"]) == []
    assert sorted(one["stage"] for one in lab.letters(topics["dead"])) == ["decode", "transform"]


def test_a_permanent_failure_stops_the_group_and_names_the_sink(spark, lab: Lab, monkeypatch):
    topics = shop(lab)
    lab.fill(topics["orders"], [{"id": 1, "amount": 20.0}])
    write = TopicSinkKind.write

    def write_or_fail(self, *rest):
        if self.sink.name == "shares":
            raise RuntimeError("odradek.spark.failures.MissingTopic: the topic is gone")
        return write(self, *rest)

    monkeypatch.setattr(TopicSinkKind, "write", write_or_fail)
    run = lab.run(spark, lab.pipeline(at_least_once(SHOP.format(**topics))))
    others = "good, rejects of orders, rejects of good"
    assert run.problem == f"shares (which shares a query with {others}): the topic is gone"
    assert ids(lab, topics["good"]) == [1], "it comes before the one that failed"


HEAD = """
[sources.orders]
topic = "orders"
schema = "id BIGINT, amount DOUBLE"
[sources.others]
topic = "others"
schema = "id BIGINT"
[sources.prices]
path = "prices.json"
format = "json"
static = true
schema = "price BIGINT"
[transforms.checked]
sql = "SELECT id FROM orders"
require = { "there is an id" = "id IS NOT NULL" }
[transforms.counted]
sql = "SELECT count(*) AS count FROM orders"
require = { "there are few" = "count < 10" }
[transforms.called]
function = "tests.pipeline.shop_functions:same"
inputs = ["orders"]
[sinks.called]
from = "called"
topic = "called"
[transforms.mapped]
function = "tests.pipeline.shop_functions:lucky_batch"
inputs = ["orders"]
returns = "id BIGINT, twice BIGINT"
[sinks.files]
from = "orders"
path = "files"
[sinks.console]
from = "orders"
console = true
[sinks.alone]
from = "orders"
topic = "alone"
own_query = true
"""
SHARED = [
    "SELECT id, amount * 2 AS twice FROM orders WHERE amount > 1",
    "SELECT id, explode(array(amount, id)) AS one FROM orders",
    "SELECT orders.* FROM orders JOIN prices ON id = price",
    "SELECT orders.* FROM orders LEFT JOIN prices ON id = price",
    "SELECT id FROM mapped WHERE twice > 2",
]
OWN = [
    "SELECT id FROM orders UNION ALL SELECT id FROM orders",
    "SELECT id FROM orders UNION ALL SELECT id FROM others",
    "SELECT count(*) AS count FROM orders",
    "SELECT DISTINCT id FROM orders",
    "SELECT id FROM orders LIMIT 5",
    "SELECT id FROM orders ORDER BY id",
    "SELECT id, row_number() OVER (PARTITION BY id ORDER BY amount) AS number FROM orders",
    "SELECT id FROM prices LEFT JOIN orders ON id = price",
    "SELECT id FROM orders WHERE id IN (SELECT price FROM prices)",
]


def test_only_what_treats_each_row_by_itself_may_share_a_query(spark, lab: Lab):
    (lab.directory / "prices.json").write_text('{"price": 1}\n')
    stages = "".join(
        f'[transforms.t{number}]\nsql = "{sql}"\n[sinks.s{number}]\nfrom = "t{number}"\ntopic = "s"\n'
        for number, sql in enumerate([*SHARED, *OWN])
    )
    pipeline = lab.pipeline(HEAD + stages)
    session = new_session(spark)
    woven = Weaver(session, pipeline, StreamReader(session, pipeline, "check")).weave()
    found = candidates(pipeline, woven)
    assert found.sinks == {f"s{number}": "orders" for number in range(len(SHARED))}
    assert found.rejects == {"orders": "orders", "others": "others", "checked": "orders"}
