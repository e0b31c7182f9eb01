"""The parts that need neither Spark nor a broker: reasons, Avro, limits, failures, checkpoints, plans, examples."""

import base64
import io
import json
import os
import struct
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, PythonException
from rich.console import Console

from odradek.errors import ErrorCode, KafkaError
from odradek.ledger.protocol import LedgerLost, TransactionLost
from odradek.ledger.record import UnreadableRecord
from odradek.model import TopicPartition
from odradek.pipeline.check.checking import check_output
from odradek.pipeline.check.planning import KEEPS, RESET, UNCHANGED, compare
from odradek.pipeline.checkpoint import Checkpoint, read_progress
from odradek.pipeline.file.document import parse
from odradek.pipeline.file.errors import PipelineError, Unreachable
from odradek.pipeline.file.examples import example, infer
from odradek.pipeline.file.reading import load
from odradek.pipeline.kinds.database.access import RowsRefused
from odradek.pipeline.kinds.registry import sink_kind
from odradek.pipeline.kinds.topics import Topics
from odradek.pipeline.rows.decoding import reasons_for
from odradek.pipeline.rows.reasons import reason_for
from odradek.pipeline.run.failures import Backoff, Failure, Kind, classify
from odradek.pipeline.run.isolation import Range, batch_in_flight, halves, isolate
from odradek.pipeline.run.live_view import LiveView
from odradek.pipeline.run.metrics import Metrics
from odradek.pipeline.run.outputs import QueryId
from odradek.pipeline.run.progress import BatchProgress, LongWork, RejectionLimit, batch_progress
from odradek.pipeline.run.running import Events, PipelineRun
from odradek.spark.offsets import to_checkpoint
from odradek.spark.typed.avro import AvroError, AvroSchema, Decoder
from tests.pipeline.lab import Recorder

# Reasons

SCHEMA = {
    "fields": [
        {"name": "id", "type": "long", "nullable": False},
        {"name": "at", "type": "timestamp", "nullable": True},
        {"name": "tags", "type": {"type": "array", "elementType": "string"}, "nullable": True},
        {
            "name": "who",
            "type": {"type": "struct", "fields": [{"name": "age", "type": "integer", "nullable": False}]},
            "nullable": True,
        },
    ]
}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('{"id": 1,}', "the value is not JSON"),
        ('{"id": "1', "the value is not JSON: unterminated string starting at character 8"),
        ('{"id": 1.5}', "field 'id' is not a whole number but 1.5"),
        ('{"id": 99999999999999999999}', "field 'id' is not within the range of long"),
        ('{"id": null}', "field 'id' is null"),
        ('{"id": 1, "at": "soon"}', "field 'at' is not a timestamp but \"soon\""),
        ('{"id": 1, "tags": 5}', "field 'tags' is not an array but 5"),
        ('{"id": 1, "who": {}}', "field 'who.age' is missing"),
        ('{"id": "\\ud83d"}', "field 'id' is not a whole number but \"\\ud83d\""),
        (
            '{"id": 1, "at": "2026-01-01T00:00:00Z", "who": {"age": true}}',
            "field 'who.age' is not a whole number",
        ),
    ],
)
def test_why_json_is_rejected(value, reason):
    assert reason_for("json", SCHEMA, value.encode()).startswith(reason)


def test_why_csv_is_rejected():
    assert reason_for("csv", SCHEMA, b"1,2") == "the value has 2 columns, the schema 4"
    assert reason_for("csv", SCHEMA, b"1\n2") == "there is more than one line in the value"


def test_reasons_are_looked_for_only_in_rejected_records():
    asked = []

    def reason(value):
        asked.append(value)
        return f"reason {len(asked)}"

    assert reasons_for(pa.array([None, None], pa.binary()), reason).equals(pa.nulls(2, pa.string()))
    assert reasons_for(pa.array([], pa.binary()), reason).equals(pa.array([], pa.string()))
    mixed = reasons_for(pa.array([None, b"x", None, b""], pa.binary()), reason)
    assert mixed.to_pylist() == [None, "reason 1", None, "reason 2"]
    assert asked == [b"x", b""]


# Avro


def zigzag(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def text(value: str) -> bytes:
    return zigzag(len(value)) + value.encode()


RECORD = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "item", "type": ["null", "string"], "default": None},
            {"name": "amount", "type": "double"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "extra", "type": {"type": "map", "values": "int"}},
        ],
    }
)
ENCODED = (
    zigzag(-7) + zigzag(1) + text("spool") + struct.pack("<d", 2.5) + zigzag(1000) + zigzag(1)
    + zigzag(2) + text("x") + text("y") + zigzag(0) + zigzag(-1) + zigzag(3) + text("k") + zigzag(9) + zigzag(0)
)  # fmt: skip


def test_avro_values():
    assert AvroSchema(RECORD).decode(ENCODED) == {
        "id": -7,
        "item": "spool",
        "amount": 2.5,
        "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "kind": "B",
        "tags": ["x", "y"],
        "extra": [("k", 9)],
    }
    assert AvroSchema(RECORD).ddl.startswith("`id` BIGINT NOT NULL, `item` STRING, `amount` DOUBLE NOT NULL")


def test_avro_that_is_cut_anywhere_or_has_more_is_an_error():
    schema = AvroSchema(RECORD)
    for size in range(len(ENCODED)):
        with pytest.raises(AvroError):
            schema.decode(ENCODED[:size])
    with pytest.raises(AvroError, match="1 bytes follow"):
        schema.decode(ENCODED + b"\0")


def test_avro_with_a_registrys_frame():
    decoder = Decoder(RECORD, "registry", "")
    assert decoder.decode(b"\0\0\0\0\5" + ENCODED)["id"] == -7
    with pytest.raises(AvroError, match="registry's header"):
        decoder.decode(ENCODED)


def test_a_writers_record_in_the_readers_schema():
    reader = AvroSchema(
        json.dumps(
            {
                "type": "record",
                "name": "Order",
                "fields": [
                    {"name": "amount", "type": "double"},
                    {"name": "new", "type": "string", "default": "none"},
                ],
            }
        )
    )
    assert reader.adapt({"id": 1, "amount": 5}) == {"amount": 5.0, "new": "none"}


@pytest.mark.parametrize(
    "schema",
    ["x", '"string"', '{"type":"record","name":"a","fields":[{"name":"u","type":["int","string"]}]}'],
)
def test_avro_schemas_that_are_refused(schema):
    with pytest.raises(AvroError):
        AvroSchema(schema)


# Limits, failures, pauses


def test_the_limit_looks_at_the_newest_rows_only():
    limit = RejectionLimit(0.1, 100)
    limit.add(50, 50)
    assert not limit.exceeded, "too few rows to judge"
    limit.add(50, 0)
    assert limit.exceeded.startswith("50 of the last 100 rows were rejected")
    for _ in range(3):
        limit.add(50, 1)
    assert not limit.exceeded, "the bad ones are long ago"


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        (
            "x TimedOut: could not list offsets within 60 s: refused\n at y",
            Kind.OUTAGE,
            "could not list offsets within 60 s: refused",
        ),
        ("odradek.spark.planning.DataLoss: t-0 is gone. To go on", Kind.PERMANENT, "t-0 is gone. To go on"),
        (
            "[STREAM_FAILED] Query failed: [DIVIDE_BY_ZERO] Division by zero. Use x SQLSTATE: 22012",
            Kind.DATA,
            "Division by zero. Use x",
        ),
        (
            "[USER_RAISED_EXCEPTION] odradek sink 'a': too large SQLSTATE: P0001",
            Kind.DATA,
            "odradek sink 'a': too large",
        ),
        (
            "PythonException: \nTraceback\n File user.py\nValueError: bad row\n",
            Kind.DATA,
            "ValueError: bad row",
        ),
        ("Job aborted java.sql.SQLException: table is locked", Kind.OTHER, "SQLException: table is locked"),
        ("[STREAMING_QUERY_EVOLUTION_ERROR.X] names", Kind.PERMANENT, "names"),
        (
            "py4j.protocol.Py4JJavaError: An error occurred while calling o1.save.\n"
            ": org.apache.spark.SparkException: Job aborted\nCaused by: java.sql.SQLException: the disk is full\n",
            Kind.OTHER,
            "SQLException: the disk is full",
        ),
        (
            "py4j.protocol.Py4JJavaError: An error occurred while calling o1.save.\n"
            "Caused by: java.sql.SQLIntegrityConstraintViolationException: a duplicate key\n at x",
            Kind.DATA,
            "a duplicate key",
        ),
    ],
)
def test_what_failures_mean(text, kind, reason):
    assert (classify(text).kind, classify(text).reason) == (kind, reason)


WORKER_TRACEBACK = 'Traceback (most recent call last):\n  File "{}", line 5, in f\nValueError: bad row\n'


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("/home/me/shop.py", Kind.DATA),
        ("/x/odradek/spark/reader.py", Kind.OTHER),
        ("/x/odradek/pipeline/rows/avro.py", Kind.OTHER),
    ],
)
def test_an_exception_of_a_worker_is_known_by_its_class(file, kind):
    error = PythonException(WORKER_TRACEBACK.format(file))
    assert "PythonException" not in str(error), "as in a batch"
    outer = PySparkException("the job was aborted")
    outer._cause = error  # where Spark keeps Java's causes
    for one in (error, outer):
        assert classify(one).kind is kind


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "transactional id odradek-once-1: …",
            Kind.PERMANENT,
        ),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "cannot create topic _odradek-ledger: …", Kind.PERMANENT),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic orders: …", Kind.OTHER),
    ],
)
def test_a_right_that_only_transactions_need_is_named_with_the_way_around_it(code, text, kind):
    failure = classify(KafkaError(code, text))
    assert failure.kind is kind
    assert failure.reason.startswith(text.rstrip("…"))
    assert ('delivery = "at_least_once"' in failure.reason) == (kind is Kind.PERMANENT)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (LedgerLost("the ledger has no record"), Kind.PERMANENT),
        (UnreadableRecord("the ledger's record of x has format 2"), Kind.PERMANENT),
        (TransactionLost("the transaction was lost 3 times"), Kind.OTHER),
    ],
)
def test_what_the_ledger_says_ends_a_run_unless_another_try_may_help(error, kind):
    assert classify(error) == Failure(kind, str(error))


def test_pauses_grow_and_begin_again():
    backoff = Backoff()
    assert [backoff.next_s() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    backoff.reset()
    assert backoff.next_s() == 1


SUPERVISED = """
[sources.orders]
topic = "orders"
format = "text"
[sinks.out]
from = "orders"
console = true
[dead_letters]
path = "dead"
limit = 0.5
limit_rows = 1000
"""


class FakeQuery:
    """A query that runs for ever; `batches` are rows out and rejected, `refused` what a database refused of them."""

    def __init__(self, kind="sink", batches=(), refused=(), start=lambda: None) -> None:
        self.identity, self.start, self.refused = QueryId(kind, "out"), start, dict(enumerate(refused))
        self.label = self.blamed = self.identity.label
        self.outputs = [self]
        self.is_active, self.stopped, self.activity = True, False, ""
        self._batches = list(batches)

    def new_progress(self):
        batches, self._batches = self._batches, []
        return [
            replace(a_batch(), query=self.label, batch=number, rows_out=rows, rejected=rejected)
            for number, (rows, rejected) in enumerate(batches)
        ]

    def stop(self):
        self.stopped = True


def a_run(write, *queries: FakeQuery, clock=lambda: 0.0) -> PipelineRun:
    run = PipelineRun(None, load(write(SUPERVISED), {}), Events(), once=False, clock=clock)
    run.queries = [run.supervised(query) for query in queries]
    return run


def test_a_registry_that_is_away_while_records_are_looked_for_is_waited_for(write, monkeypatch):
    """A query is woven for that, and an Avro sink asks the registry."""

    def away(query):
        raise Unreachable("the registry does not respond")

    query = FakeQuery()
    query.is_active, query.failure = False, lambda: RowsRefused("a row")
    run = a_run(write, query)
    monkeypatch.setattr("odradek.pipeline.run.running.records_that_fail", away)
    run.look()
    assert run.problem is None and run.queries[0].retry_at_s == 1.0


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (FakeQuery("transform", [(1000, 600)]), "rejects of out: 600 of the last 1000 rows were rejected"),
        (FakeQuery("sink", [(1000, None)], refused=[600]), "out: 600 of the last 1000 rows were rejected"),
        (FakeQuery("sink", [(1000, None)], refused=[400]), None),
    ],
)
def test_what_one_stage_rejects_is_not_made_less_by_what_others_let_pass(write, query, problem):
    run = a_run(write, FakeQuery("decode", [(1000, 0)]), query)
    run.look()
    assert run.problem is None if problem is None else run.problem.startswith(problem)
    assert query.stopped == (problem is not None)


def test_a_pipeline_that_cannot_begin_begins_nothing_after_that(write):
    started = []

    def fail() -> None:
        raise PipelineError("there is no such thing")

    run = a_run(write, FakeQuery(start=fail), FakeQuery(start=lambda: started.append(1)))
    run.start()
    assert run.problem == "there is no such thing" and not started


def test_what_does_not_answer_is_tried_again_after_a_pause(write):
    responses = [Unreachable("the table cannot be read"), None]
    now = [0.0]

    def start() -> None:
        if (error := responses.pop(0)) is not None:
            raise error

    run = a_run(write, FakeQuery(start=start), clock=lambda: now[0])
    run.start()
    assert run.problem is None and len(responses) == 1
    run.look()
    assert len(responses) == 1, "not before the pause is over"
    now[0] = 1.0
    run.look()
    assert run.problem is None and not responses


# Isolation


def test_halves_lose_nothing():
    ranges = [Range("t", 0, 3, 10), Range("t", 1, 0, 1), Range("u", 0, 5, 6)]

    def offsets(some):
        return [(one.topic, one.partition, at) for one in some for at in range(one.start, one.end)]

    first, rest = halves(ranges)
    assert offsets(first) + offsets(rest) == offsets(ranges) and len(offsets(first)) == 4


def test_bad_records_are_found_by_halving():
    bad = {("t", 0, 17), ("t", 1, 4), ("t", 1, 5)}
    tries = 0

    def fails(frame):
        nonlocal tries
        tries += 1
        found = {
            (one.topic, one.partition, at) for one in frame["orders"] for at in range(one.start, one.end)
        }
        return "bad" if found & bad else None

    batch = {"orders": [Range("t", 0, 0, 1000), Range("t", 1, 0, 24)]}
    found = isolate(batch, lambda chosen: chosen, fails)
    assert {(one.topic, one.partition, one.offset) for one in found} == bad
    assert tries < 50


# Progress


def a_batch() -> BatchProgress:
    return batch_progress(
        "shop",
        "out",
        "sink",
        {
            "batchId": 3,
            "timestamp": "2026-01-01T00:00:00Z",
            "numInputRows": 10,
            "durationMs": {"triggerExecution": 500, "addBatch": 400},
            "observedMetrics": {"odradek": {"rows": 8}},
            "sources": [
                {
                    "endOffset": {"(from t:0=0,1=0)": {}, "t": {"0": 5, "1": 7}},
                    "latestOffset": {"t": {"0": 9, "1": 7}},
                },
                {"endOffset": {"logOffset": 1}, "latestOffset": None},
            ],
        },
    )


def test_progress_in_the_words_of_operators():
    progress = a_batch()
    assert (progress.rows_in, progress.rows_out, progress.lag) == (10, 8, {"t": 4})
    metrics = Metrics()
    metrics.take(progress)
    shown = metrics.text()
    assert 'odradek_pipeline_lag_records{pipeline="shop",query="out",topic="t"} 4' in shown
    assert 'odradek_pipeline_rows_out_total{pipeline="shop",query="out"} 8' in shown


def test_long_work_is_told_at_growing_intervals():
    work = LongWork()
    told = [now for now in range(100) if work.look("" if now < 20 else "processing a batch", now) is not None]
    assert told == [30, 40, 60]
    assert work.look("", 100) is None and work.look("processing a batch", 101) is None, "a new batch"
    assert work.look("processing a batch", 111) == 10


def test_the_live_table_shows_totals_lag_and_where_the_time_goes():
    screen = io.StringIO()
    metrics = Metrics()
    with LiveView(metrics, Console(file=screen, width=160, force_terminal=True)) as view:
        view.batch(a_batch())
        view.message("shop", "the brokers [are] away", kind="outage")
        view.batch(a_batch())
    (row,) = [line for line in screen.getvalue().splitlines() if "shop" in line and "out" in line][-1:]
    cells = [cell.strip() for cell in row.split("│")[1:-1]]
    assert cells == ["shop", "out", "3", "20", "16", "20", "t 4", "0.5 s", "addBatch 0.4 s"]
    assert "shop: the brokers [are] away" in screen.getvalue(), "what looks like markup is shown as it is"
    assert 'odradek_pipeline_rows_in_total{pipeline="shop",query="out"} 20' in metrics.text()


# Checkpoints

SMALL = '[sources.orders]\ntopic = "orders"\nformat = "text"\n[sinks.out]\nfrom = "orders"\n'


def test_a_checkpoint_of_another_pipeline_is_refused(write):
    first = load(write(SMALL + "console = true", "first.toml"), {})
    Checkpoint(first).write_manifest({"sinks": {}})
    os.rename(first.state_directory, first.state_directory.with_name("second"))
    second = load(write(SMALL + "console = true", "second.toml"), {})
    with pytest.raises(PipelineError, match=r"second.toml.*it belongs to the pipeline 'first'"):
        Checkpoint(second).manifest()


def test_a_directory_of_sparks_without_a_manifest_is_refused(write):
    pipeline = load(write(SMALL + "console = true"), {})
    (pipeline.state_directory / "offsets").mkdir(parents=True)
    with pytest.raises(PipelineError, match="it has no manifest"):
        Checkpoint(pipeline).manifest()


def test_files_without_their_checkpoint_are_refused(write, tmp_path):
    pipeline = load(write(SMALL + 'path = "lake"'), {})
    (tmp_path / "lake" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "lake" / "_spark_metadata" / "0").touch()
    with pytest.raises(
        PipelineError,
        match=r"pipe.toml:6: sinks.out.path: .*Spark would treat new batches as already written",
    ):
        check_output(Checkpoint(pipeline), sink_kind(pipeline, pipeline.sinks["out"]))


def test_one_process_at_a_time(write):
    checkpoint = Checkpoint(load(write(SMALL + "console = true"), {}))
    assert checkpoint.runner() is None
    with checkpoint.locked():
        assert checkpoint.runner() == os.getpid()
        other = Checkpoint(checkpoint.pipeline)
        with pytest.raises(PipelineError, match=f"already running in process {os.getpid()}"), other.locked():
            pass
    assert checkpoint.runner() is None


def test_offsets_by_name(tmp_path):
    for name, lines in (("offsets/4", ['b:{"t":{"0":3}}', "a:-"]), ("offsets/5", ['a:{"t":{"0":9}}'])):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("\n".join(["v2", "{}", *lines]))
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "4").write_text("v1\n{}")
    progress = read_progress(tmp_path)
    assert progress is not None and (progress.batch, progress.finished) == (5, 4)
    assert progress.committed == {"b": {"t": {"0": 3}}, "a": None} and progress.offsets == {
        "a": {"t": {"0": 9}}
    }


def test_a_batch_in_flight_begins_where_the_last_one_ended_or_where_its_own_entry_says(write):
    pipeline = load(write(SMALL + "console = true"), {})
    (source,) = pipeline.sources
    checkpoint = Checkpoint(pipeline)
    directory = checkpoint.query("sink", "out")
    for name in ("offsets", "commits"):
        (directory / name).mkdir(parents=True)
    first = to_checkpoint({TopicPartition("t", 0): 7}, {TopicPartition("t", 0): 2})
    (directory / "offsets" / "0").write_text(f"v2\n{{}}\n{source}:{json.dumps(first)}")
    assert batch_in_flight(pipeline, checkpoint, "sink", "out") == {source: [Range("t", 0, 2, 7)]}
    (directory / "commits" / "0").write_text("v1\n{}")
    assert batch_in_flight(pipeline, checkpoint, "sink", "out") == {}
    grown = to_checkpoint({TopicPartition("t", 0): 9, TopicPartition("t", 1): 4}, {TopicPartition("t", 1): 1})
    (directory / "offsets" / "1").write_text(f"v2\n{{}}\n{source}:{json.dumps(grown)}")
    found = batch_in_flight(pipeline, checkpoint, "sink", "out")
    assert found == {source: [Range("t", 0, 7, 9), Range("t", 1, 1, 4)]}


# Plans

SINK = {
    "to": "topic x",
    "mode": "append",
    "from": "t",
    "sources": {"orders": {"kind": "TopicSource", "reads": ["a"], "rows": "1", "watermark": None}},
    "transforms": {"t": "1"},
    "state": [],
}


@pytest.mark.parametrize(
    ("change", "verdict", "reason"),
    [
        ({}, UNCHANGED, ""),
        ({"transforms": {"t": "2"}}, KEEPS, "transforms changed: t"),
        ({"state": ["Aggregate(x)"]}, RESET, "Aggregate(x) is new"),
        ({"mode": "update"}, KEEPS, "the mode changed"),
        ({"to": "topic y"}, KEEPS, "rows go to topic y from now on"),
        ({"sources": {}}, KEEPS, "source orders is no longer read"),
        (
            {"sources": {"orders": SINK["sources"]["orders"] | {"reads": ["b"]}}},
            RESET,
            "reads b instead of a",
        ),
        (
            {"sources": {"orders": SINK["sources"]["orders"] | {"reads": ["a", "b"]}}},
            KEEPS,
            "reads a, b instead of a",
        ),
    ],
)
def test_what_an_edit_does(change, verdict, reason):
    found = compare("out", SINK, SINK | change)
    assert found.verdict == verdict and any(reason in one for one in (*found.reasons, ""))


# Examples


def test_schemas_are_inferred():
    rows = [
        {"id": 1, "amount": 2, "at": "2026-01-01T10:00:00Z", "day": "2026-01-01", "ok": True, "tags": ["a"]},
        {"id": 2, "amount": 2.5, "at": "2026-01-01T10:00:00+01:00", "day": "2026-01-02", "who": {"age": 3}},
    ]
    form, schema = infer([json.dumps(row).encode() for row in rows])
    assert form == "json"
    assert schema.replace("\n", " ") == (
        "id BIGINT, amount DOUBLE, at TIMESTAMP, day DATE, ok BOOLEAN, tags ARRAY<STRING>, who STRUCT<`age`: BIGINT>"
    )
    assert infer([b"just text"]) == ("text", "")
    assert infer([base64.b64decode("//8=")]) == ("raw", "")


def test_the_example_is_a_good_file(write):
    pipeline = load(write(example("shop", "shop.toml", "localhost:9092"), "shop.toml"), {})
    assert pipeline.name == "shop" and len(pipeline.tests) == 1


def test_the_command_line_does_not_import_spark():
    program = "import sys; import odradek.cli.app; print([name for name in sys.modules if name.startswith('pyspark')])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]", "pyspark is imported only where it is used"


def test_a_document_is_found_beside(tmp_path: Path):
    assert parse(tmp_path / "x.toml", "a = 1").path == tmp_path / "x.toml"


# Topics


class ClusterWithout:
    """A cluster that has not the topic in question. Who asks for its partitions waits for seconds."""

    def topic_names(self) -> list[str]:
        return ["another"]

    def partitions_of(self, names: object) -> list[TopicPartition]:
        raise AssertionError("a declared topic that is not there is created, not waited for")


GUARANTEED = """
[kafka]
"bootstrap.servers" = "localhost:9092"
[sources.orders]
topic = "orders"
format = "text"
[sinks.out]
from = "orders"
"""


@pytest.mark.parametrize(
    ("sink", "wanted"),
    [
        ('topic = "t"', "exactly once, for readers of committed data"),
        ('topic = "t"\nmode = "update"\nkey = "value"', "exactly once, for readers of committed data"),
        (
            'topic = "t"\ndelivery = "at_least_once"',
            "at least once: no loss; after a crash the batch in flight may be repeated",
        ),
        (
            'topic = "t"\ndelivery = "at_least_once"\nmode = "update"\nkey = "value"',
            "at least once; the newest row of a key is the last one",
        ),
        (
            'path = "out"\nformat = "json"',
            "exactly once, for readers that honour _spark_metadata, as Spark does",
        ),
        ("console = true", "shown at least once"),
    ],
)
def test_a_run_says_what_each_sink_guarantees_and_for_whom(write, sink, wanted):
    pipeline = load(write(GUARANTEED + sink))
    told = Recorder()
    run = PipelineRun(None, pipeline, told, once=True)
    run.start()
    assert [message.partition(": ")[2] for message in told.messages] == [wanted]


def test_a_declared_topic_that_is_not_there_is_not_waited_for():
    assert Topics(ClusterWithout(), "localhost:9092").find_now("revenue") is None
