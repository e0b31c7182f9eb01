"""Other kinds of sources, transforms and sinks: Avro, CSV, JDBC, functions, joins of streams; replay; limits."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from odradek.pipeline.check.checking import check
from odradek.pipeline.check.planning import KEEPS, RESET, UNCHANGED, compare, describe, plan
from odradek.pipeline.check.previewing import preview
from odradek.pipeline.check.weaving import BatchReader, Weaver
from odradek.pipeline.file.errors import PipelineError
from odradek.pipeline.run.replay import Replay, newest_letters
from odradek.pipeline.run.running import PipelineRun, Supervisor
from tests.pipeline.lab import Lab, Recorder

HERE = Path(__file__).parent
DERBY = "org.apache.derby.iapi.jdbc.AutoloadedDriver"


def derby(spark, url: str, *statements: str) -> None:
    """Statements on a database of this JVM's own."""
    manager = spark.sparkContext._jvm.java.sql.DriverManager
    connection = manager.getConnection(f"{url};create=true")
    for statement in statements:
        connection.createStatement().execute(statement)
    connection.close()


def shut_down(spark, path: Path) -> None:
    with pytest.raises(Exception, match="shutdown"):
        spark.sparkContext._jvm.java.sql.DriverManager.getConnection(f"jdbc:derby:{path};shutdown=true")


def avro_order(number: int, item: str) -> bytes:
    return bytes([number << 1, len(item) << 1]) + item.encode() + struct.pack("<d", number / 2)


AVRO_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "amount", "type": "double"},
    ],
}


def test_avro_csv_text_and_raw_with_everything_on_the_console(spark, lab: Lab):
    (lab.directory / "order.avsc").write_text(json.dumps(AVRO_SCHEMA))
    topics = {name: lab.topic(1) for name in ("avro", "csv", "text", "raw")}
    lab.fill(
        topics["avro"], [b"\0\0\0\0\1" + avro_order(1, "a"), b"\0\0\0\0\1" + avro_order(2, "b")[:-1], b"x"], 1
    )
    lab.fill(topics["csv"], [b'1,"a, b"', b"2", b"", b"3,x\n4,y", b"5,c\n"], 1)
    lab.fill(topics["text"], [b"one", b"\xfe"], 1)
    lab.fill(topics["raw"], [b"\xfe"], 1, key=b"k")
    pipeline = lab.pipeline(f"""
[sources.a]
topic = "{topics["avro"]}"
format = "avro"
framing = "registry"
schema_file = "order.avsc"
[sources.c]
topic = "{topics["csv"]}"
format = "csv"
schema = "id BIGINT, item STRING"
[sources.t]
topic = "{topics["text"]}"
format = "text"
[sources.r]
topic = "{topics["raw"]}"
format = "raw"
[transforms.all_of_them]
sql = '''
SELECT 'avro' AS kind, concat_ws('/', id, item, amount) AS row FROM a
UNION ALL SELECT 'csv', concat_ws('/', id, item) FROM c
UNION ALL SELECT 'text', value FROM t
UNION ALL SELECT 'raw', concat(hex(value), ' ', CAST(_key AS STRING)) FROM r
'''
[sinks.screen]
from = "all_of_them"
console = true
[dead_letters]
path = "dead"
limit = 1
""")
    lab.run_well(spark, pipeline)
    rows = {line.strip() for text in lab.events.shown for line in text.splitlines()[3:]}
    assert rows == {"avro  1/a/0.5", "csv   1/a, b", "csv   5/c", "text  one", "raw   FE k"}
    reasons = {letter["reason"] for letter in newest_letters(pipeline, 20)}
    assert reasons == {
        "the value ends too early for its schema",
        "the value does not start with a registry's header, a zero byte and a schema id",
        "the value has 1 columns, the schema 2",
        "the value is empty",
        "there is more than one line in the value",
        "the value is not UTF-8: byte 0 is 0xfe",
    }


def test_a_function_joins_a_table_and_writes_one(spark, lab: Lab, monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    url = f"jdbc:derby:{lab.directory / 'db'}"
    derby(
        spark,
        url,
        "CREATE TABLE books (book BIGINT, title VARCHAR(20))",
        "INSERT INTO books VALUES (1, 'one'), (2, 'two'), (3, 'x')",
        "CREATE TABLE priced (id BIGINT PRIMARY KEY, title VARCHAR(20), loud VARCHAR(3))",
        "INSERT INTO priced VALUES (2, 'is', 'in')",
    )
    source, dead = lab.topic(1), lab.fresh_name()
    lab.fill(source, [{"id": 1}, {"id": 2}, {"id": 3}], 1)
    pipeline = lab.pipeline(f"""
[sources.orders]
topic = "{source}"
schema = "id BIGINT"
[sources.books]
jdbc = "{url}"
table = "books"
[transforms.priced]
function = "shop_functions:priced"
inputs = ["orders", "books"]
[sinks.table]
from = "priced"
jdbc = "{url}"
table = "priced"
[dead_letters]
topic = "{dead}"
partitions = 1
limit = 1
""")
    lab.run_well(spark, pipeline)
    rows = spark.read.format("jdbc").options(url=url, dbtable="priced").load().collect()
    assert sorted((row.ID, row.LOUD) for row in rows) == [(1, "ONE"), (2, "in"), (3, "X")]
    (letter,) = lab.letters(dead)
    assert letter["stage"] == "sink" and letter["content"] == "row" and "duplicate key" in letter["reason"]
    assert json.loads(letter["raw"]) == {"id": 2, "title": "two", "loud": "TWO"}
    for function, problem in (
        ("shop_functions:not_a_frame", "returned int, it must return a DataFrame"),
        ("shop_functions:broken", r"failed: AnalysisException.*shop_functions.py:\d+"),
        ("shop_functions:pricd", "there is no function 'pricd'.*did you mean 'priced'"),
        ("no_such_module:f", "module 'no_such_module' cannot be imported"),
    ):
        text = f'[sources.orders]\ntopic = "x"\nformat = "text"\n[transforms.t]\nfunction = "{function}"\n'
        wrong = lab.pipeline(
            f'{text}inputs = "orders"\n[sinks.out]\nfrom = "t"\nconsole = true\n', "wrong.toml"
        )
        with pytest.raises(PipelineError, match=rf"wrong.toml:7: transforms.t.function: .*{problem}"):
            check(spark, wrong, offline=True)
    text = text.replace(function, "shop_functions:lucky_batch").replace(
        "[transforms.t]", '[transforms.t]\nreturns = "id"'
    )
    wrong = lab.pipeline(f'{text}inputs = "orders"\n[sinks.out]\nfrom = "t"\nconsole = true\n', "wrong.toml")
    with pytest.raises(PipelineError, match=r"transforms.t.returns: these are not columns"):
        check(spark, wrong, offline=True)


JOIN = """
[sources.orders]
topic = "{orders}"
schema = "id BIGINT, at TIMESTAMP"
watermark = {{ column = "at", delay = "1 minute" }}
[sources.returns]
topic = "{returns}"
schema = "id BIGINT, back TIMESTAMP"
{watermark}
[transforms.pairs]
sql = '''
SELECT orders.id, back FROM orders JOIN returns ON orders.id = returns.id {range}
'''
[sinks.out]
from = "pairs"
topic = "{out}"
partitions = 1
"""
WATERMARK = 'watermark = { column = "back", delay = "1 minute" }'
RANGE = "AND back BETWEEN at AND at + INTERVAL 1 HOUR"


def test_a_join_of_streams_over_a_restart_and_what_edits_do_to_it(spark, lab: Lab):
    names = {"orders": lab.topic(1), "returns": lab.topic(1), "out": lab.fresh_name()}
    for watermark, limits in (("", RANGE), (WATERMARK, "")):
        unbounded = lab.pipeline(JOIN.format(**names, watermark=watermark, range=limits))
        with pytest.raises(
            PipelineError, match=r"a join of two streams keeps the rows of its .* side forever"
        ):
            check(spark, unbounded, offline=True)
    lab.fill(
        names["orders"], [{"id": 1, "at": "2026-01-01T10:00:00Z"}, {"id": 2, "at": "2026-01-01T10:00:00Z"}], 1
    )
    text = JOIN.format(**names, watermark=WATERMARK, range=RANGE)
    lab.run_well(spark, lab.pipeline(text))
    lab.fill(names["returns"], [{"id": 2, "back": "2026-01-01T10:30:00Z"}], 1)
    swapped = text.replace("orders JOIN returns", "returns JOIN orders")
    (change,) = plan(spark, check(spark, lab.pipeline(swapped), offline=True))
    assert change.verdict == RESET, "the sides of a join are its state"
    renamed = text.replace("SELECT orders.id, back FROM", "SELECT orders.id AS id, back, 1 AS one FROM")
    (change,) = plan(spark, check(spark, lab.pipeline(renamed), offline=True))
    assert change.verdict == KEEPS
    lab.run_well(spark, lab.pipeline(renamed))
    assert [(row["id"], row["one"]) for row in lab.values(names["out"])] == [(2, 1)], (
        "the order waited in the state"
    )
    with pytest.raises(PipelineError, match=r"sinks.out: state cannot be kept.*odradek pipeline reset"):
        lab.run(spark, lab.pipeline(swapped))


STATE = """
[sources.orders]
topic = "orders"
schema = "item STRING, at TIMESTAMP, amount DOUBLE"
watermark = {{ column = "at", delay = "1 minute" }}
[sources.returns]
topic = "returns"
schema = "item STRING, back TIMESTAMP"
watermark = {{ column = "back", delay = "1 minute" }}
[transforms.groups]
sql = "SELECT window(at, '{length}').start AS minute, {functions} FROM orders {where} GROUP BY {by}"
[transforms.figures]
sql = "SELECT {figures} FROM groups"
[transforms.pairs]
sql = '''
SELECT {columns} FROM orders JOIN returns
ON orders.item = returns.item AND back BETWEEN at AND at + INTERVAL 1 HOUR
'''
[sinks.figures]
from = "figures"
topic = "figures"
mode = "update"
key = "minute"
[sinks.pairs]
from = "pairs"
topic = "pairs"
"""
BEFORE = {
    "length": "1 minute",
    "functions": "min(abs(amount)) AS a, max(abs(amount)) AS b, sum(amount) AS c",
    "where": "",
    "by": "window(at, '1 minute')",
    "figures": "minute, a, b",
    "columns": "orders.item, back",
}


def test_which_edits_change_what_state_means(spark, lab: Lab):
    def described(edit: dict[str, str]) -> dict:
        pipeline = lab.pipeline(STATE.format(**BEFORE | edit))
        return describe(spark, check(spark, pipeline, offline=True))["sinks"]

    before = described({})
    amount_too, louder = {"columns": "orders.item, back, amount"}, {"columns": "upper(orders.item), back"}
    for edit, *verdicts in (
        ({"where": "WHERE amount > 0"} | louder, KEEPS, KEEPS),
        ({"figures": "minute, a AS least, b, 1 AS one"} | amount_too, KEEPS, RESET),
        ({"functions": BEFORE["functions"] + ", avg(amount) AS d"}, KEEPS, UNCHANGED),  # that nobody needs
        ({"functions": BEFORE["functions"].replace("max(", "min(")}, RESET, UNCHANGED),
        ({"figures": "minute, b, a"}, RESET, UNCHANGED),  # the order in which Spark keeps them
        ({"figures": "minute, a, c"}, RESET, UNCHANGED),
        ({"by": "window(at, '1 minute'), item"}, RESET, UNCHANGED),
        ({"length": "5 minutes", "by": "window(at, '5 minutes')"}, RESET, UNCHANGED),
    ):
        after = described(edit)
        found = [compare(sink, before[sink], after[sink]).verdict for sink in ("figures", "pairs")]
        assert (edit, found) == (edit, verdicts)


def test_sources_are_known_by_name_not_by_position(spark, lab: Lab):
    one, two, out = lab.topic(1), lab.topic(1), lab.topic(1)
    lab.fill(one, [{"id": 1}, {"id": 2}], 1)
    lab.fill(two, [{"id": 10}], 1)
    source = '[sources.{0}]\ntopic = "{1}"\nschema = "id BIGINT"\n'
    text = "[transforms.both]\nsql = 'SELECT id FROM {0} UNION ALL SELECT id FROM {1}'\n"
    text += f'[sinks.out]\nfrom = "both"\ntopic = "{out}"\n'
    declared = [source.format("first", one), source.format("second", two)]
    lab.run_well(spark, lab.pipeline("".join(declared) + text.format("first", "second")))
    lab.fill(one, [{"id": 3}], 1)
    lab.run_well(spark, lab.pipeline("".join(reversed(declared)) + text.format("second", "first")))
    assert sorted(row["id"] for row in lab.values(out)) == [1, 2, 3, 10], (
        "each once, though both changed places"
    )


REPLAYED = """
[sources.orders]
topic = "{source}"
schema = "{schema}"
[sinks.out]
from = "orders"
topic = "{target}"
key = "id"
mode = "update"
delete_when = "gone"
[dead_letters]
topic = "{dead}"
partitions = 1
limit = 1
"""


def test_dead_letters_are_replayed_after_a_fix_once(spark, lab: Lab):
    names = {"source": lab.topic(1), "target": lab.topic(1), "dead": lab.fresh_name()}
    lab.fill(
        names["source"],
        [{"id": "a"}, {"id": 2, "gone": True}, b"never"],
        1,
        key=b"k",
        headers=[("mine", b"1")],
    )
    lab.run_well(spark, lab.pipeline(REPLAYED.format(**names, schema="id INT, gone BOOLEAN")))
    assert len(lab.letters(names["dead"])) == 2
    assert [(one.key(), one.value()) for one in lab.records(names["target"])] == [(b"2", None)], "a tombstone"
    mended = lab.pipeline(REPLAYED.format(**names, schema="id STRING, gone BOOLEAN"))
    assert Replay(mended, to=None, everything=False).run(dry=True).sent == {names["source"]: 2}
    assert Replay(mended, to=None, everything=False).run(dry=False).sent == {names["source"]: 2}
    assert Replay(mended, to=None, everything=False).run(dry=False).sent == {}, "only once"
    again = lab.records(names["source"])[3]
    assert (again.key(), again.value(), dict(again.headers())["mine"]) == (b"k", b'{"id": "a"}', b"1")
    lab.run_well(spark, mended)
    assert [one.key() for one in lab.records(names["target"])] == [b"2", b"a"]
    assert len(lab.letters(names["dead"])) == 3, "what is still bad is set aside again"


def test_too_many_rejections_stop_the_pipeline(spark, lab: Lab):
    source, dead = lab.topic(1), lab.fresh_name()
    lab.fill(source, [b"bad"] * 20, 1)
    run = lab.run(
        spark,
        lab.pipeline(f"""
[sources.orders]
topic = "{source}"
schema = "id BIGINT"
[sinks.out]
from = "orders"
console = true
[dead_letters]
topic = "{dead}"
partitions = 1
limit = 0.5
limit_rows = 20
"""),
    )
    assert run.problem is not None and "20 of the last 20 rows were rejected" in run.problem
    assert len(lab.letters(dead)) == 20


def test_without_dead_letters_a_bad_record_ends_the_run_and_is_named(spark, lab: Lab):
    source = lab.topic(1)
    lab.fill(source, [{"id": 1}, b"bad"], 1)
    text = f'[sources.orders]\ntopic = "{source}"\nschema = "id BIGINT"\n[sinks.out]\nfrom = "orders"\nconsole = true\n'
    pipeline = lab.pipeline(text)
    run = lab.run(spark, pipeline)
    assert run.problem is not None
    assert (
        f"record {source}-0 offset 1: the value is not JSON" in run.problem
        and "[dead_letters]" in run.problem
    )
    shown = "\n".join(preview(spark, lab.pipeline(text + '[dead_letters]\npath = "dead"\n'), 5))
    assert "source orders" in shown and "the value is not JSON" in shown and "nothing is written" in shown
    assert not (lab.directory / "dead").exists()
    shutil.rmtree(pipeline.state_directory)


@pytest.mark.parametrize(
    ("rows", "require", "problem"),
    [
        ([{"id": 1}, b"bad"], "", "offset 1: the value is not JSON"),
        ([{"id": 1}, {"id": None}], 'require = { "there is an id" = "id IS NOT NULL" }', "'there is an id'"),
    ],
)
def test_no_filter_hides_a_bad_record_from_a_pipeline_without_dead_letters(
    spark, lab: Lab, rows: list, require: str, problem: str
):
    source = lab.topic(1)
    lab.fill(source, rows, 1)
    text = f'[sources.orders]\ntopic = "{source}"\nschema = "id BIGINT"\n'
    text += f"[transforms.all]\nsql = 'SELECT * FROM orders'\n{require}\n"
    text += "[transforms.some]\nsql = 'SELECT id FROM all WHERE id > 0'\n"
    pipeline = lab.pipeline(text + '[sinks.out]\nfrom = "some"\nconsole = true\n')
    session = spark.newSession()
    woven = Weaver(session, pipeline, BatchReader(session, pipeline)).weave()
    with pytest.raises(Exception, match=problem):
        woven.rows["some"].collect()


class RepairDatabases(Recorder):
    """Brings a database back once the run says that it misses it, in these words, and will try again."""

    def __init__(self, away: dict[str, Path]) -> None:
        super().__init__()
        self.away = away

    def message(self, pipeline: str, text: str, **facts: Any) -> None:
        super().message(pipeline, text, **facts)
        for words in [words for words in self.away if words in text and "trying again" in text]:
            path = self.away.pop(words)
            path.with_suffix(".away").rename(path)


def test_databases_that_are_away_are_waited_for(spark, lab: Lab, monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    read, written = lab.directory / "read", lab.directory / "written"
    derby(
        spark,
        f"jdbc:derby:{read}",
        "CREATE TABLE books (book BIGINT, title VARCHAR(20))",
        "INSERT INTO books VALUES (1, 'one'), (2, 'two')",
    )
    derby(
        spark,
        f"jdbc:derby:{written}",
        "CREATE TABLE priced (id BIGINT PRIMARY KEY, title VARCHAR(20), loud VARCHAR(3))",
    )
    source = lab.topic(1)
    lab.fill(source, [{"id": 1}, {"id": 2}], 1)
    text = f"""
[sources.orders]
topic = "{source}"
schema = "id BIGINT"
[sources.books]
jdbc = "jdbc:derby:{read}"
table = "books"
[transforms.priced]
function = "shop_functions:priced"
inputs = ["orders", "books"]
[sinks.table]
from = "priced"
jdbc = "jdbc:derby:{written}"
table = "priced"
"""
    missed = "sources.books.jdbc: the table cannot be read"
    events = RepairDatabases({missed: read, f"Database '{written}' not found": written})
    run = PipelineRun(spark, lab.pipeline(text), events, once=True, retries=20)
    run.prepare()
    for path in (read, written):
        shut_down(spark, path)
        path.rename(path.with_suffix(".away"))
    Supervisor([run]).run()
    assert run.problem is None and events.away == {}, run.problem
    rows = spark.read.format("jdbc").options(url=f"jdbc:derby:{written}", dbtable="priced").load().collect()
    assert sorted(row.ID for row in rows) == [1, 2], "nothing is lost or repeated"
    lab.fill(source, [{"id": 2}], 1)
    run = lab.run(spark, lab.pipeline(text))
    assert run.problem is not None and "duplicate key" in run.problem and "[dead_letters]" in run.problem


def test_topics_that_are_not_there(spark, lab: Lab):
    text = (
        '[sources.orders]\ntopic = "{0}"\nformat = "text"\n[sinks.out]\nfrom = "orders"\ntopic = "{1}"\n{2}'
    )
    there, absent = lab.topic(2), lab.fresh_name()
    with pytest.raises(
        PipelineError, match=rf"pipe.toml:4: sources.orders.topic: there is no topic '{absent}'"
    ):
        check(spark, lab.pipeline(text.format(absent, there, "")))
    with pytest.raises(PipelineError, match=rf"pipe.toml:8: sinks.out.topic: .*'{absent}'.*partitions = N"):
        check(spark, lab.pipeline(text.format(there, absent, "")))
    check(spark, lab.pipeline(text.format(there, absent, "partitions = 3")))
    with pytest.raises(PipelineError, match=r"has 2 partitions, not 3"):
        check(spark, lab.pipeline(text.format(there, there, "partitions = 3")))


def test_a_source_read_twice_by_one_query(spark, lab: Lab):
    one, two, out = lab.topic(1), lab.topic(1), lab.topic(1)
    lab.fill(one, [{"id": 1}], 1)
    source = '[sources.{0}]\ntopic = "{1}"\nschema = "id BIGINT"\n'
    text = source.format("first", one) + source.format("second", two)
    text += "[transforms.both]\nsql = 'SELECT id FROM first UNION ALL SELECT id + 10 FROM {0}'\n"
    text += f'[sinks.out]\nfrom = "both"\ntopic = "{out}"\n'
    pipeline = lab.pipeline(text.format("first"))
    lab.run_well(spark, pipeline)
    lab.fill(one, [{"id": 2}], 1)
    lab.run_well(spark, pipeline)
    assert sorted(row["id"] for row in lab.values(out)) == [1, 2, 11, 12], "each once, over both runs"
    beside = text.format("first UNION ALL SELECT id FROM second")
    with pytest.raises(PipelineError, match=r"sinks.out.from: 'first' is read more than once in this query"):
        check(spark, lab.pipeline(beside, "beside.toml"), offline=True)
