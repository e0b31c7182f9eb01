"""Functions of the user's as sinks, the two examples of them, and Spark's own data sources as sources."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from odradek.pipeline.check.checking import check
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.errors import PipelineError
from odradek.pipeline.kinds.function_sink import BatchId, FunctionFailed, checked, problem_of
from odradek.pipeline.kinds.sink import Refused
from odradek.pipeline.run.failures import Kind, classify
from tests.pipeline.http_servers import Asked, Response, serving
from tests.pipeline.lab import Lab
from tests.pipeline.search_index import SearchIndex, busy
from tests.spark.committed import forget_last_commit

EXAMPLES = Path(__file__).parents[2] / "examples" / "sinks"
SHOP = """
[pipeline]
python_path = ["{path}"]
[sources.orders]
topic = "{orders}"
schema = "id BIGINT, item STRING"
[sinks.out]
from = "orders"
function = "{function}"
{more}
"""
INSTANT = datetime(2026, 1, 1, tzinfo=UTC)
LETTERS = '[dead_letters]\npath = "dead"\nlimit = 1\n'


def letters(lab: Lab) -> list[dict[str, Any]]:
    return [json.loads(line) for file in (lab.directory / "dead").rglob("*.json") for line in file.open()]


class Endpoint:
    """Keeps the rows of each key once. It is busy, then broken, before it takes the first request."""

    def __init__(self) -> None:
        self.requests: list[Asked] = []
        self.taken: dict[str, list[dict[str, Any]]] = {}
        self.troubles: list[tuple[int, dict[str, str]]] = [
            (429, {"Retry-After": "0.01"}),
            (500, {}),
            (503, {"Retry-After": "0"}),
        ]

    def answer(self, asked: Asked) -> Response:
        self.requests.append(asked)
        rows = json.loads(asked.body)
        if self.troubles:
            status, more = self.troubles.pop(0)
            return status, more, b"later"
        if any(row["item"] == "bad" for row in rows):
            return 422, {}, b"no bad items"
        self.taken.setdefault(asked.headers["Idempotency-Key"], rows)
        return 200, {}, b""


def test_an_http_endpoint_with_batches_retries_and_back_pressure(spark, lab: Lab, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import http_sink

    monkeypatch.setattr(http_sink, "ROWS", 2)
    topic, endpoint = lab.topic(1), Endpoint()
    lab.fill(topic, [{"id": number, "item": "bad" if number == 4 else "x"} for number in range(5)], 1)
    text = SHOP.format(path=EXAMPLES, orders=topic, function="http_sink:post", more=LETTERS)
    with serving(endpoint.answer) as address:
        monkeypatch.setenv("ENDPOINT", address)
        lab.run_well(spark, lab.pipeline(text))
        forget_last_commit(Checkpoint(lab.pipeline(text)).query("sink", "out"))
        lab.run_well(spark, lab.pipeline(text))
    assert sum("trying again" in one for one in lab.events.messages) == 1, (
        "only the 500 is left to the pipeline"
    )
    kept = [row["id"] for rows in endpoint.taken.values() for row in rows]
    assert kept == [0, 1, 2, 3], "each once, though the batch ran again: its keys are the same"
    sent = [asked.headers["Idempotency-Key"] for asked in endpoint.requests]
    assert len(sent) == 3 + 3 + 3 and len(set(sent)) == 3
    assert {one["reason"] for one in letters(lab)} == {"HTTP 422: no bad items"}
    assert {json.loads(one["text"])["id"] for one in letters(lab)} == {4}


def test_how_long_an_endpoint_wants_us_to_wait_and_what_json_has_not(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import http_sink

    waits = {"3": 3.0, None: 1.0, "-1": 0.0, "soon": 1.0, "Thu, 01 Jan 1970 00:01:00 GMT": 50.0}
    assert {said: http_sink.seconds(said, 10.0) for said in waits} == waits
    assert http_sink.as_json([{"a": float("nan"), "b": 1.5}]) == b'[{"a": null, "b": 1.5}]'
    nested = [{"a": [{"b": float("inf")}], "at": INSTANT}]
    assert http_sink.as_json(nested) == b'[{"a": [{"b": null}], "at": "2026-01-01 00:00:00+00:00"}]'


def test_an_endpoint_that_has_moved_gets_no_rows_in_silence(monkeypatch):
    """A redirected POST becomes a GET, which a web server answers with its page."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import http_sink
    import opensearch_sink

    asked = []

    def answer(request: Asked) -> Response:
        asked.append(request.method)
        return (200, {}, b"a page") if request.method == "GET" else (301, {"Location": "/new"}, b"")

    rows = pa.table({"id": ["a"]})
    with serving(answer) as address:
        monkeypatch.setenv("ENDPOINT", address)
        monkeypatch.setenv("OPENSEARCH", f"{address}/orders")
        with pytest.raises(OSError, match="301"):
            http_sink.post(rows, BatchId("q", 1))
        with pytest.raises(OSError, match="301"):
            opensearch_sink.index(rows, BatchId("q", 1))
    assert asked == ["POST", "POST"]


def test_requests_with_other_rows_have_other_keys(monkeypatch):
    """Behind a shuffle a batch that runs again may have its rows in another order: none may be taken for known."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import http_sink

    monkeypatch.setattr(http_sink, "ROWS", 2)
    taken: dict[str, list[Any]] = {}

    def answer(request: Asked) -> Response:
        taken.setdefault(request.headers["Idempotency-Key"], json.loads(request.body))
        return 200, {}, b""

    with serving(answer) as address:
        monkeypatch.setenv("ENDPOINT", address)
        for ids in ([1, 2, 3, 4], [1, 2, 3, 4], [3, 1, 4, 2]):
            http_sink.post(pa.table({"id": ids}), BatchId("q", 1))
    assert [[row["id"] for row in rows] for rows in taken.values()] == [[1, 2], [3, 4], [3, 1], [4, 2]]


def test_a_document_that_is_sent_again_does_not_replace_a_later_one(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import opensearch_sink

    index = SearchIndex("orders")
    index.busy_for = {"a", "b"}
    rows = [
        {"id": "a", "count": 1},
        {"id": "b", "count": 1},
        {"id": "a", "count": 2},
        {"id": "b", "count": "few"},
    ]
    with serving(index.answer) as address:
        monkeypatch.setenv("OPENSEARCH", f"{address}/orders")
        refused = opensearch_sink.store(dict(enumerate(rows)))
    assert index.documents == {"a": rows[2], "b": rows[1]}
    assert [number for number, _ in refused] == [3]


ORDERS = """
[pipeline]
python_path = ["{path}"]
[sources.orders]
topic = "{orders}"
schema = "id STRING, count STRING"
[sinks.out]
from = "orders"
function = "opensearch_sink:index"
[dead_letters]
path = "dead"
limit = 1
"""


def test_bulk_calls_of_a_search_index(spark, lab: Lab, monkeypatch):
    """The first call meets a node without memory; then a queue is full for one document."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    topic, index = lab.topic(1), SearchIndex("orders")
    index.troubles, index.busy_for = [busy()], {"b"}
    good = [{"id": "a", "count": "1"}, {"id": "b", "count": "2"}, {"id": "c", "count": None}]
    bad = [{"id": "d", "count": "few"}, {"id": None, "count": "4"}, {"id": "x" * 513, "count": "5"}]
    lab.fill(topic, [good[0], *bad, *good[1:]], 1)
    text = ORDERS.format(path=EXAMPLES, orders=topic)
    with serving(index.answer) as address:
        monkeypatch.setenv("OPENSEARCH", address.replace("//", "//shop:p%40ss@") + "/orders")
        lab.run_well(spark, lab.pipeline(text))
        forget_last_commit(Checkpoint(lab.pipeline(text)).query("sink", "out"))
        lab.run_well(spark, lab.pipeline(text))
        assert index.documents == {one["id"]: one for one in good}
        assert [len(asked.body.splitlines()) // 2 for asked in index.calls] == [4, 4, 1, 4], (
            "the whole call, then only the busy document is sent again"
        )
        assert index.calls[0].headers["Authorization"] == "Basic c2hvcDpwQHNz"
        assert {one["reason"] for one in letters(lab)} == {
            "mapper_parsing_exception: failed to parse field [count] of type [long] in document with id 'd'",
            "a document needs an id",
            "the id has 513 bytes, and 512 are allowed",
        }
        assert {json.loads(one["text"])["count"] for one in letters(lab)} == {"few", "4", "5"}
        monkeypatch.setenv("OPENSEARCH", f"{address}/others")
        lab.fill(topic, good[:1], 1)
        run = lab.run(spark, lab.pipeline(text), retries=0)
    assert run.problem is not None
    assert "opensearch_sink:index raised OSError: http" in run.problem
    assert "/others/_bulk answers HTTP 405" in run.problem
    assert "p%40ss" not in "".join(lab.events.messages)


FUNCTIONS = """
seen = []

def frames(rows, batch):
    seen.append((sorted(row.id for row in rows.collect()), rows.columns, str(batch)))

def refuses(rows, batch):
    return [(0, "I do not like it")]

def never_runs(rows, batch):
    yield from rows.collect()

not_callable = 5
"""


def test_a_function_of_dataframes_and_what_is_wrong_with_functions(spark, lab: Lab, monkeypatch):
    monkeypatch.syspath_prepend(str(lab.directory))
    name = f"functions_{lab.fresh_name()}"
    (lab.directory / f"{name}.py").write_text(FUNCTIONS)
    topic = lab.topic(1)
    lab.fill(topic, [{"id": 1}, {"id": 2}], 1)
    facts = {"path": lab.directory, "orders": topic}
    pipeline = lab.pipeline(SHOP.format(**facts, function=f"{name}:frames", more='takes = "dataframe"'))
    lab.run_well(spark, pipeline)
    lab.fill(topic, [{"id": 3}], 1)
    lab.run_well(spark, pipeline)
    sink = Checkpoint(pipeline).query_id("sink", "out")
    seen = __import__(name).seen
    assert [one[0] for one in seen if one[0]] == [[1, 2], [3]] and seen[0][1] == ["id", "item"]
    assert [one[2] for one in seen] == [f"{sink}-{number:09d}" for number in range(len(seen))]
    assert Checkpoint(pipeline).remove_query("sink", "out")
    run = lab.run(spark, lab.pipeline(SHOP.format(**facts, function=f"{name}:refuses", more="")))
    assert (
        run.problem is not None
        and "refused row 0 of batch" in run.problem
        and "I do not like it" in run.problem
    )
    generator = SHOP.format(**facts, function=f"{name}:never_runs", more='takes = "dataframe"')
    run = lab.run(spark, lab.pipeline(generator))
    assert run.problem is not None and "a function of DataFrames must return None" in run.problem
    for function, problem in (
        ("no_such_module:f", "cannot be imported"),
        (f"{name}:frame", "did you mean 'frames'"),
        (f"{name}:not_callable", "there is no function 'not_callable'"),
    ):
        with pytest.raises(PipelineError, match=problem):
            check(spark, lab.pipeline(SHOP.format(**facts, function=function, more="")), offline=True)


def test_what_a_function_may_return():
    assert checked(None, 2, "f") == {} and checked([(1, "why")], 2, "f") == {1: "why"}
    with pytest.raises(Refused, match=r"must return None, or a list of \(number of a row, reason\)"):
        checked(5, 2, "f")  # type: ignore[arg-type]
    with pytest.raises(Refused, match="refused row 2, and the batch has 2 rows"):
        checked([(2, "why")], 2, "f")
    assert str(BatchId("id", 7)) == "id-000000007"


def test_what_cannot_be_called():
    async def later(rows, batch): ...

    assert "nothing would await it" in problem_of(later)
    assert "must take two arguments" in problem_of(lambda rows: None)
    assert problem_of(lambda rows, batch, more=None: None) == problem_of(print) == ""


@pytest.mark.parametrize(
    "said", ["DataLoss: gone", "HTTP 409: INCOMPATIBLE", "DatabaseRefused: no", "SQLSTATE: 22012"]
)
def test_an_exception_of_a_function_is_always_tried_again(said: str):
    """Whatever its words look like."""
    failure = classify(FunctionFailed(f"shop:send raised OSError: {said}"))
    assert failure.kind is Kind.OTHER and "shop:send raised OSError" in failure.reason


SOURCE = """
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition


class Numbers(DataSource):
    @classmethod
    def name(cls):
        return "numbers"

    def schema(self):
        return "number BIGINT"

    def reader(self, schema):
        return All()

    def streamReader(self, schema):
        return Stream(int(self.options.get("count", 5)))


class All(DataSourceReader):
    def read(self, partition):
        yield from ((number,) for number in range(10))


class Range(InputPartition):
    def __init__(self, first, end):
        self.first, self.end = first, end


class Stream(DataSourceStreamReader):
    def __init__(self, count):
        self.count = count

    def initialOffset(self):
        return {"number": 0}

    def latestOffset(self):
        return {"number": self.count}

    def partitions(self, start, end):
        return [Range(start["number"], end["number"])]

    def read(self, partition):
        yield from ((number,) for number in range(partition.first, partition.end))
"""
NUMBERS = """
[pipeline]
python_path = ["{path}"]
[sources.numbers]
format = "numbers"
provider = "{module}:Numbers"
options = {{ count = {count} }}
[sources.known]
format = "numbers"
provider = "{module}:Numbers"
static = true
[transforms.joined]
sql = "SELECT numbers.number, known.number AS known FROM numbers JOIN known ON numbers.number = known.number + 1"
[sinks.out]
from = "joined"
topic = "{out}"
"""


def test_a_data_source_in_python_is_a_stream_and_the_side_of_a_join(spark, lab: Lab, monkeypatch):
    monkeypatch.syspath_prepend(str(lab.directory))
    module, out = f"numbers_{lab.fresh_name()}", lab.topic(1)
    (lab.directory / f"{module}.py").write_text(SOURCE)
    for count in (3, 5):
        text = NUMBERS.format(path=lab.directory, module=module, count=count, out=out)
        lab.run_well(spark, lab.pipeline(text))
    assert sorted(row["number"] for row in lab.values(out)) == [1, 2, 3, 4], "each once, over a restart"
    wrong = text.replace('format = "numbers"', 'format = "others"')
    with pytest.raises(PipelineError, match="Numbers is called 'numbers'"):
        check(spark, lab.pipeline(wrong), offline=True)
    unknown = '[sources.a]\nformat = "no_such_format"\n[sinks.out]\nfrom = "a"\nconsole = true\n'
    with pytest.raises(PipelineError, match=r"sources.a.format: the format 'no_such_format' cannot be read"):
        check(spark, lab.pipeline(unknown), offline=True)
