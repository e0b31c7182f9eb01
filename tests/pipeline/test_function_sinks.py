"""Functions of the user's as sinks, the two examples of them, and Spark's own data sources as sources."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from odradek.pipeline.check.checking import check
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.errors import PipelineError
from odradek.pipeline.kinds.function_sink import BatchId, checked
from tests.pipeline.lab import Lab
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
LETTERS = '[dead_letters]\npath = "dead"\nlimit = 1\n'


class Server:
    """Answers POST requests with what `answer` returns: a status, headers and a body."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self._lock = threading.Lock()

    def answer(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        raise NotImplementedError

    @contextmanager
    def running(self) -> Iterator[str]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with server._lock:
                    headers = dict(self.headers) | {"path": self.path}
                    server.requests.append((headers, body))
                    status, more, content = server.answer(headers, body)
                self.send_response(status)
                for name, value in {**more, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                return

        http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_address[1]}"
        finally:
            http.shutdown()
            thread.join()
            http.server_close()


def letters(lab: Lab) -> list[dict[str, Any]]:
    return [json.loads(line) for file in (lab.directory / "dead").rglob("*.json") for line in file.open()]


class Endpoint(Server):
    """Keeps the rows of each key once. It is busy, then broken, before it takes the first request."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[str, list[dict[str, Any]]] = {}
        self.troubles: list[tuple[int, dict[str, str]]] = [
            (429, {"Retry-After": "0.01"}),
            (500, {}),
            (503, {"Retry-After": "0"}),
        ]

    def answer(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        rows = json.loads(body)
        if self.troubles:
            status, more = self.troubles.pop(0)
            return status, more, b"later"
        if any(row["item"] == "bad" for row in rows):
            return 422, {}, b"no bad items"
        self.taken.setdefault(headers["Idempotency-Key"], rows)
        return 200, {}, b""


def test_an_http_endpoint_with_batches_retries_and_back_pressure(spark, lab: Lab, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import http_sink

    monkeypatch.setattr(http_sink, "ROWS", 2)
    topic, endpoint = lab.topic(1), Endpoint()
    lab.fill(topic, [{"id": number, "item": "bad" if number == 4 else "x"} for number in range(5)], 1)
    text = SHOP.format(path=EXAMPLES, orders=topic, function="http_sink:post", more=LETTERS)
    with endpoint.running() as address:
        monkeypatch.setenv("ENDPOINT", address)
        lab.run_well(spark, lab.pipeline(text))
        forget_last_commit(Checkpoint(lab.pipeline(text)).query("sink", "out"))
        lab.run_well(spark, lab.pipeline(text))
    assert sum("trying again" in one for one in lab.events.messages) == 1, (
        "only the 500 is left to the pipeline"
    )
    kept = [row["id"] for rows in endpoint.taken.values() for row in rows]
    assert kept == [0, 1, 2, 3], "each once, though the batch ran again: its keys are the same"
    sent = [headers["Idempotency-Key"] for headers, _ in endpoint.requests]
    assert len(sent) == 3 + 3 + 3 and len(set(sent)) == 3
    assert {one["reason"] for one in letters(lab)} == {"HTTP 422: no bad items"}
    assert {json.loads(one["text"])["id"] for one in letters(lab)} == {4}


class SearchIndex(Server):
    """Bulk calls as OpenSearch answers them: one result for each document."""

    def __init__(self) -> None:
        super().__init__()
        self.documents: dict[Any, dict[str, Any]] = {}
        self.busy_for = {2}

    def answer(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        lines = [json.loads(line) for line in body.splitlines()]
        items = [
            {"index": self.store(action["index"]["_id"], document)}
            for action, document in zip(lines[::2], lines[1::2], strict=True)
        ]
        failed = any(item["index"]["status"] >= 300 for item in items)
        return (
            200,
            {"Content-Type": "application/json"},
            json.dumps({"errors": failed, "items": items}).encode(),
        )

    def store(self, identity: Any, document: dict[str, Any]) -> dict[str, Any]:
        if identity in self.busy_for:
            self.busy_for.remove(identity)
            return {"_id": identity, "status": 429, "error": {"type": "rejected", "reason": "queue is full"}}
        if document["item"] == "bad":
            reason = {"type": "mapper_parsing_exception", "reason": "failed to parse field [item]"}
            return {"_id": identity, "status": 400, "error": reason}
        self.documents[identity] = document
        return {"_id": identity, "status": 201}


def test_bulk_calls_of_a_search_index(spark, lab: Lab, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    topic, index = lab.topic(1), SearchIndex()
    lab.fill(
        topic, [{"id": number, "item": "bad" if number == 3 else f"item {number}"} for number in range(5)], 1
    )
    text = SHOP.format(path=EXAMPLES, orders=topic, function="opensearch_sink:index", more=LETTERS)
    with index.running() as address:
        monkeypatch.setenv("OPENSEARCH", address.replace("//", "//shop:p%40ss@") + "/orders")
        lab.run_well(spark, lab.pipeline(text))
        forget_last_commit(Checkpoint(lab.pipeline(text)).query("sink", "out"))
        lab.run_well(spark, lab.pipeline(text))
    assert sorted(index.documents) == [0, 1, 2, 4] and index.documents[2]["item"] == "item 2"
    assert [len(body.splitlines()) // 2 for _, body in index.requests] == [5, 1, 5], (
        "only the busy one is sent again"
    )
    headers = index.requests[0][0]
    assert headers["path"] == "/orders/_bulk" and headers["Authorization"] == "Basic c2hvcDpwQHNz"
    assert {one["reason"] for one in letters(lab)} == {
        "mapper_parsing_exception: failed to parse field [item]"
    }


FUNCTIONS = """
seen = []

def frames(rows, batch):
    seen.append((sorted(row.id for row in rows.collect()), rows.columns, str(batch)))

def refuses(rows, batch):
    return [(0, "I do not like it")]

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
    for function, problem in (
        ("no_such_module:f", "cannot be imported"),
        (f"{name}:frame", "did you mean 'frames'"),
        (f"{name}:not_callable", "there is no function 'not_callable'"),
    ):
        with pytest.raises(PipelineError, match=problem):
            check(spark, lab.pipeline(SHOP.format(**facts, function=function, more="")), offline=True)


def test_what_a_function_may_return():
    assert checked(None, 2, "f") == {} and checked([(1, "why")], 2, "f") == {1: "why"}
    with pytest.raises(TypeError, match=r"must return None, or a list of \(number of a row, reason\)"):
        checked(5, 2, "f")  # type: ignore[arg-type]
    with pytest.raises(IndexError, match="refused row 2, and the batch has 2 rows"):
        checked([(2, "why")], 2, "f")
    assert str(BatchId("id", 7)) == "id-000000007"


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
