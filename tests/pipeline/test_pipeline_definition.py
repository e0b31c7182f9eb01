"""Tests of what a file may say, and how it is told what it may not."""

import pytest

from odradek.pipeline.file.definition import (
    ConsoleSink,
    FileSink,
    FileSource,
    IcebergSink,
    JdbcSink,
    JdbcTable,
    TopicSink,
    TopicSource,
)
from odradek.pipeline.file.errors import PipelineError, PipelineErrors
from odradek.pipeline.file.reading import load

WHOLE = """
[pipeline]
name = "shop"
version = "7"
checkpoint = "state"
trigger = "5 seconds"
python_path = "lib"
spark = { "spark.sql.shuffle.partitions" = 8 }

[kafka]
bootstrap.servers = "one:9092,two:9092"
security.protocol = "PLAINTEXT"

[sources.orders]
topic = "orders"
schema = "id BIGINT, at TIMESTAMP"
start = "latest"
max_rows_per_batch = 100
watermark = { column = "at", delay = "10 minutes" }
kafka = { client.id = "me" }

[sources.returns]
topics = ["returns", "old-returns"]
format = "csv"
schema_file = "returns.ddl"

[sources.logs]
path = "logs/*.txt"
format = "text"

[sources.books]
jdbc = "jdbc:derby:books"
table = "books"

[transforms.joined]
sql = "SELECT 1"
require = { "an id is there" = "id IS NOT NULL" }

[transforms.scored]
function = "scores.model:score"
inputs = ["joined", "books"]

[sinks.totals]
from = "scored"
topic = "totals"
mode = "update"
key = ["id", "at"]
delete_when = "gone"
partitions = 3
replication_factor = 2
config = { cleanup.policy = "compact" }

[sinks.lake]
from = "joined"
path = "lake"
partition_by = "day"

[sinks.table]
from = "joined"
table = "catalog.db.name"

[sinks.database]
from = "joined"
jdbc = "jdbc:derby:out"
table = "joined"

[sinks.screen]
from = "joined"
console = true

[dead_letters]
topic = "dead"
limit = 0.1

[[tests]]
name = "one"
given.orders = []
expect.joined = []
"""


def test_a_file_with_everything(write):
    pipeline = load(write(WHOLE, "any.toml"), {})
    assert (pipeline.name, pipeline.version, pipeline.trigger) == ("shop", "7", "5 seconds")
    assert pipeline.state_directory.parts[-2:] == ("state", "shop")
    assert pipeline.spark == {"spark.sql.shuffle.partitions": "8"}
    orders, returns = pipeline.sources["orders"], pipeline.sources["returns"]
    assert isinstance(orders.origin, TopicSource) and orders.format == "json"
    assert orders.origin.kafka == {
        "isolation.level": "read_committed",
        "bootstrap.servers": "one:9092,two:9092",
        "security.protocol": "PLAINTEXT",
        "client.id": "me",
    }
    assert isinstance(returns.origin, TopicSource) and returns.origin.topics == ("returns", "old-returns")
    assert isinstance(pipeline.sources["logs"].origin, FileSource)
    assert isinstance(pipeline.sources["books"].origin, JdbcTable) and pipeline.sources["books"].is_static
    targets = {name: type(sink.target) for name, sink in pipeline.sinks.items()}
    assert targets == {
        "totals": TopicSink,
        "lake": FileSink,
        "table": IcebergSink,
        "database": JdbcSink,
        "screen": ConsoleSink,
    }
    totals = pipeline.sinks["totals"].target
    assert isinstance(totals, TopicSink) and totals.declaration.config == {"cleanup.policy": "compact"}
    assert pipeline.dead_letters is not None and pipeline.dead_letters.limit == 0.1


DELIVERIES = """
[sources.orders]
topic = "orders"
format = "text"
[sinks.a]
from = "orders"
topic = "a"
{a}
[sinks.b]
from = "orders"
topic = "b"
{b}
[dead_letters]
topic = "dead"
{dead}
"""
DECLINED, WANTED = 'delivery = "at_least_once"', 'delivery = "exactly_once"'


@pytest.mark.parametrize(
    ("said", "exactly_once"),
    [
        (("", "", ""), (True, True, True)),
        ((DECLINED, "", ""), (False, True, True)),
        ((DECLINED, DECLINED, ""), (False, False, False)),
        ((DECLINED, DECLINED, WANTED), (False, False, True)),
        (("", "", DECLINED), (True, True, False)),
    ],
)
def test_topics_are_written_exactly_once_unless_they_decline_it(write, said, exactly_once):
    """Dead letters follow the sinks, where they say nothing."""
    pipeline = load(write(DELIVERIES.format(**dict(zip(("a", "b", "dead"), said, strict=True)))))
    found = [sink.target.declaration for sink in pipeline.sinks.values()] + [pipeline.dead_letters.topic]
    assert tuple(one.exactly_once for one in found) == exactly_once


SMALL = """\
[sources.orders]
topic = "orders"
format = "text"
[sinks.out]
from = "orders"
console = true
"""


def test_a_small_file_takes_its_name_from_the_file_and_its_version_from_the_text(write):
    first = load(write(SMALL, "small.toml"), {})
    assert first.name == "small" and first.trigger == "" and first.dead_letters is None
    assert load(write(SMALL + "\n", "small.toml"), {}).version != first.version


def test_a_profile_names_settings_of_spark(write):
    assert load(write(SMALL), {}).profile == "standard"
    assert load(write('[pipeline]\nprofile = "small"\n' + SMALL), {}).profile == "small"
    with pytest.raises(PipelineErrors, match="profile"):
        load(write('[pipeline]\nprofile = "fast"\n' + SMALL), {})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'format = "text"',
            'fromat = "text"',
            r":3: sources.orders.fromat: there is no such key; did you mean 'format'\?",
        ),
        ('format = "text"', 'format = "xml"', r":3: sources.orders.format: 'xml' is not one of json, csv"),
        ('format = "text"', 'format = "json"', r":1: sources.orders: the format json needs a schema"),
        ('format = "text"', 'format = "text"\nschema = "a INT"', r":4: .*the format text has no schema"),
        (
            'topic = "orders"',
            'topic = ""',
            r":2: sources.orders.topic: this must be a string, or a list of strings",
        ),
        ('topic = "orders"', "topic = 5", r":2: sources.orders.topic: this must be a string"),
        (
            'topic = "orders"',
            'topic = "a"\npath = "b"',
            r":1: .*exactly one of topic, .*, not topic and path",
        ),
        (
            'from = "orders"',
            'from = "order"',
            r":5: sinks.out.from: there is no source or transform 'order'; there are orders",
        ),
        ("console = true", 'topic = "x"\nmode = "update"', r":7: sinks.out.mode: updates are upserts by key"),
        (
            "console = true",
            'topic = "x"\nmode = "complete"',
            r":7: .*'complete' is not one of append, update",
        ),
        ("console = true", 'topic = "x"\nconfig = { a = "b" }', r"give partitions"),
        (
            "console = true",
            "",
            r":4: sinks.out: give exactly one of topic, path, table, database, jdbc, function and console",
        ),
        ("[sources.orders]", "[sources.my-orders]", r":1: .*'my-orders' is not a name"),
        (
            "[sources.orders]",
            '[sources.orders]\nwatermark = { column = "a", delay = "soon" }',
            r"'soon' is not a duration",
        ),
        (
            "[sources.orders]",
            '[sources.orders]\nstart = "yesterday"',
            r":2: sources.orders.start: this must be earliest",
        ),
        (
            "[sinks.out]",
            '[transforms.t]\nsql = "x"\nsql_file = "y"\n[sinks.out]',
            r":4: .*exactly one of sql, sql_file",
        ),
        (
            "[sinks.out]",
            '[transforms.t]\nfunction = "x"\n[sinks.out]',
            r":5: .*not of the form package.module:function",
        ),
        (
            "[sinks.out]",
            '[dead_letters]\nlimit = 2\npath = "x"\n[sinks.out]',
            r":5: .*not a number from 0 to 1",
        ),
        (
            "[sinks.out]",
            '[transforms.orders]\nsql = "x"\n[sinks.out]',
            r":4: .*there is also a source named 'orders'",
        ),
        (
            "[sources.orders]",
            "[piepline]\n[sources.orders]",
            r":1: piepline: there is no such key; did you mean 'pipeline'\?",
        ),
    ],
)
def test_one_thing_wrong(write, old, new, message):
    assert old in SMALL
    with pytest.raises(PipelineError, match=message):
        load(write(SMALL.replace(old, new)), {})


def test_all_that_is_wrong_is_told_together_in_order(write):
    text = SMALL.replace('format = "text"', 'fromat = "text"').replace("console", "consoel")
    with pytest.raises(PipelineErrors) as raised:
        load(write(text), {})
    lines = [error.line for error in raised.value.errors]
    assert len(lines) >= 3 and lines == sorted(lines)


def test_a_file_that_is_not_there_says_how_to_begin(tmp_path):
    with pytest.raises(PipelineError, match="odradek pipeline init"):
        load(tmp_path / "none.toml")


def test_secrets_are_never_in_a_repr(write):
    text = (
        SMALL + '[sinks.db]\nfrom = "orders"\njdbc = "jdbc:x:y"\ntable = "t"\nuser = "u"\npassword = "${P}"\n'
    )
    assert "hush" not in repr(load(write(text), {"P": "hush"}).sinks)
