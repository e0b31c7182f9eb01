"""`odradek sql` over topics and archives on a real broker."""

import csv
import io
import json
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from odradek.archive.planning import Log
from odradek.sql import reading
from odradek.sql.tables import Tables

KINDS = ("order", "return", "view")


@pytest.fixture(scope="package")  # as long as its broker: a worker may come back to a module
def orders(broker) -> str:
    """Half of it archived by each test that wants so: 90 JSON records, 10 seconds apart, in two partitions."""
    from tests.spark.spark_topics import Topics

    topic = Topics(broker.bootstrap).create(partitions=2, name="orders")
    send(broker, topic, range(60))
    return topic


def send(broker, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in numbers:
        value = {
            "id": number,
            "kind": KINDS[number % 3],
            "price": number / 4,
            "tags": {"colour": "red", "n": [1]},
        }
        time_ms = 1_700_000_000_000 + 10_000 * number
        producer.produce(topic, json.dumps(value), key=f"k{number}", partition=number % 2, timestamp=time_ms)
    assert producer.flush(30) == 0


def rows(done) -> list[dict]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def sql(odradek):
    return lambda *arguments: rows(odradek("sql", *arguments, "--format", "json"))


def test_fields_of_json_are_columns(sql, orders):
    found = sql("SELECT kind, count(*) AS n, sum(price) AS total FROM orders GROUP BY kind ORDER BY kind")
    assert found == [
        {"kind": "order", "n": 20, "total": 142.5},
        {"kind": "return", "n": 20, "total": 147.5},
        {"kind": "view", "n": 20, "total": 152.5},
    ]
    assert sql(
        "SELECT typeof(id) AS id, typeof(price) AS price, tags.colour AS c, tags.n AS n FROM orders LIMIT 1"
    ) == [{"id": "BIGINT", "price": "DOUBLE", "c": "red", "n": [1]}]


def test_records_have_columns_of_their_own(sql, orders):
    query = "SELECT _key, _partition, _offset, _timestamp, _value FROM orders WHERE id = 5"
    (found,) = sql(query)
    assert json.loads(found.pop("_value"))["kind"] == "view"
    assert found == {"_key": "k5", "_partition": 1, "_offset": 2, "_timestamp": "2023-11-14T22:14:10+00:00"}


def test_tables_and_csv_are_printed(odradek, orders):
    query = "SELECT id, kind, tags, NULL AS none, id FROM orders ORDER BY id LIMIT 2"
    table = odradek("sql", query).stdout.splitlines()
    assert table[0].split() == ["id", "kind", "tags", "none", "id"]
    assert table[2].split(maxsplit=2)[:2] == ["1", "return"]
    text = odradek("sql", query, "--format", "csv").stdout
    assert list(csv.reader(io.StringIO(text)))[1] == ["0", "order", '{"colour": "red", "n": [1]}', "", "0"]


def test_only_records_of_a_time(sql, orders):
    found = sql(
        "SELECT min(id) AS first, max(id) AS last FROM orders",
        "--from",
        "1700000100000",
        "--to",
        "1700000200000",
    )
    assert found == [{"first": 10, "last": 19}]
    assert sql("SELECT count(*) AS n FROM orders", "--from", "1900000000000") == [{"n": 0}]


def test_a_schema_is_given(sql, odradek, orders):
    query = "SELECT typeof(id) AS a, id + 1 AS b, missing, kind FROM orders WHERE id = 3"
    found = sql(query, "--schema", "id INTEGER, kind STRING, missing DATE")
    assert found == [{"a": "INTEGER", "b": 4, "missing": None, "kind": "order"}]
    assert sql("SELECT kind FROM orders WHERE id = 3", "--schema", "orders=id INTEGER, kind INTEGER") == [
        {"kind": None}
    ]
    refused = odradek("sql", query, "--schema", "id NUMBERS")
    assert (
        refused.returncode == 1 and "is not a list of columns like 'id BIGINT, kind STRING'" in refused.stderr
    )


def test_values_that_are_no_json_are_text(sql, topics):
    topic = topics.create(partitions=1, name="plain.text")
    topics.fill(topic, [b"one", b"two", b"\xff", b"7"])
    found = sql('SELECT _value FROM "plain.text" ORDER BY _offset')
    assert [one["_value"] for one in found] == ["one", "two", "\\xFF", "7"]


def test_a_few_bad_values_are_null(sql, topics):
    topic = topics.create(partitions=1, name="mixed")
    topics.fill(
        topic, [b'{"n": 1}', b'{"n": "x"}', b'{"n": 2}', b"{broken", b"[1]", b'{"n": 3}', b'{"n": 4}']
    )
    assert sql("SELECT n FROM mixed ORDER BY _offset", "--schema", "n BIGINT") == [
        {"n": value} for value in (1, None, 2, None, None, 3, 4)
    ]


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([b"{}", b"{}"], [{}, {}]),
        ([b'{"": 1, "a": 2}'], [{"a": 2}]),
        ([b'{"n": 18446744073709551615}', b'{"n": 1}'], [{"n": 2**64 - 1}, {"n": 1}]),
        ([b'{"n": 9223372036854775807}'], [{"n": 2**63 - 1}]),
        ([b'{"a b": 1, "select": 2, "q\\"x": 3}'], [{"a b": 1, "select": 2, 'q"x': 3}]),
        ([b'{"text": "a", "key": 1, "value": 2}'], [{"text": "a", "key": 1, "value": 2}]),
        ([b'{"n": {"a": 1}}', b'{"n": 5}'], [{"n": '{"a":1}'}, {"n": "5"}]),
    ],
)
def test_odd_objects_have_columns(sql, topics, values, found):
    topic = topics.create(partitions=1)
    topics.fill(topic, values)
    rows = sql(f'SELECT * EXCLUDE (_key, _value, _partition, _timestamp, _headers) FROM "{topic}"')
    assert rows == [{**fields, "_offset": offset} for offset, fields in enumerate(found)]


ODD_RESULTS = """SELECT timestamptz '2024-01-03' - timestamptz '2024-01-01 10:00:00.5' AS gap,
  -interval 14 month AS ago, interval 0 second AS none, map(['a'], [1]) AS counts, 'nan'::DOUBLE AS nan,
  [1e308 * 10] AS far, 1 AS id, 2 AS id, 'one
two' AS lines"""


def test_results_of_all_types_are_printed(odradek, sql):
    assert sql(ODD_RESULTS) == [
        {
            "gap": "1 day 13:59:59.5",
            "ago": "-1 year -2 months",
            "none": "00:00:00",
            "counts": {"a": 1},
            "nan": None,
            "far": [None],
            "id": 1,
            "id_1": 2,
            "lines": "one\ntwo",
        }
    ]
    table = odradek("sql", ODD_RESULTS).stdout.splitlines()
    assert len(table) == 2 and table[1].endswith(r"one\ntwo")
    text = odradek("sql", ODD_RESULTS, "--format", "csv").stdout
    assert list(csv.reader(io.StringIO(text)))[1] == [
        "1 day 13:59:59.5",
        "-1 year -2 months",
        "00:00:00",
        '{"a": 1}',
        "nan",
        "[null]",
        "1",
        "2",
        "one\ntwo",
    ]


def test_several_files_are_named_by_a_pattern(odradek, sql, tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text(f"name\n{name}\n")
    assert sql(f"SELECT count(*) AS n FROM '{tmp_path}/*.csv'") == [{"n": 2}]
    done = odradek("sql", f"SELECT * FROM '{tmp_path}/*.json'")
    assert done.returncode == 1 and "there is no topic, archive or file" in done.stderr


@pytest.mark.parametrize("small", [True, False])
def test_a_time_that_microseconds_cannot_tell(sql, broker, topics, monkeypatch, small):
    monkeypatch.setattr(reading, "SMALL", 20_000 if small else 0)
    topic = topics.create(partitions=1, message_timestamp_after_max_ms=str(2**62))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"x", timestamp=1_700_000_000_000_000_000)
    assert producer.flush(30) == 0
    assert sql(f'SELECT epoch_ms(_timestamp) AS ms FROM "{topic}"') == [{"ms": (2**63 - 1) // 1000}]


def test_a_topic_that_has_lost_archived_records_is_refused(odradek, topics, archive, monkeypatch):
    topic = topics.create(partitions=1)
    topics.fill(topic, [b'{"n": 1}'] * 3)
    odradek("archive", topic, "--to", str(archive))
    described = reading.TopicReader.describe

    def truncated(self, name):
        found = described(self, name)
        return replace(found, logs={0: Log(0, 2, 2)})

    monkeypatch.setattr(reading.TopicReader, "describe", truncated)
    done = odradek("sql", f'SELECT * FROM "{topic}"', "--archive", str(archive))
    assert done.returncode == 1 and "ends before offset 3, up to which it is archived" in done.stderr


def test_a_time_that_no_calendar_has_gets_a_sentence(odradek, sql, broker, topics):
    limit = str(2**62)
    topic = topics.create(partitions=1, name="odd-times", message_timestamp_after_max_ms=limit)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"x", timestamp=1_700_000_000_000_000)
    assert producer.flush(30) == 0
    done = odradek("sql", 'SELECT _timestamp FROM "odd-times"')
    assert done.returncode == 1 and "epoch_ms(_timestamp) is the time as a number" in done.stderr
    assert sql('SELECT epoch_ms(_timestamp) AS ms FROM "odd-times"') == [{"ms": 1_700_000_000_000_000}]


def test_an_archive_and_the_rest_of_its_topic_are_one_table(sql, odradek, broker, topics, archive):
    topic = topics.create(partitions=2, name="history")
    send(broker, topic, range(30))
    assert odradek("archive", topic, "--to", str(archive)).returncode == 0
    send(broker, topic, range(30, 50))
    odradek("topic", "delete-records", topic, "--before", "10", "--yes")
    query = "SELECT count(*) AS n, count(DISTINCT id) AS d, min(id) AS a, max(id) AS b FROM history"
    assert sql(query, "--archive", str(archive)) == [{"n": 50, "d": 50, "a": 0, "b": 49}]
    assert sql(query) == [{"n": 30, "d": 30, "a": 20, "b": 49}]
    assert sql(query, "--archive", str(archive), "--archive-only") == [{"n": 30, "d": 30, "a": 0, "b": 29}]
    limits = ("--from", "1700000250000", "--to", "1700000350000")
    assert sql(query, "--archive", str(archive), *limits) == [{"n": 10, "d": 10, "a": 25, "b": 34}]


def test_a_gap_between_archive_and_topic_is_refused(odradek, topics, archive):
    topic = topics.create(partitions=1, name="gap")
    topics.fill(topic, [b'{"n": 1}'])
    odradek("archive", topic, "--to", str(archive))
    topics.fill(topic, [b'{"n": 1}'] * 3)
    odradek("topic", "delete-records", topic, "--before", "3", "--yes")
    refused = odradek("sql", "SELECT * FROM gap", "--archive", str(archive))
    assert (
        refused.returncode == 1 and "offsets 1 to 2 of gap-0 are neither in the archive nor" in refused.stderr
    )


def test_a_file_that_is_vacuumed_before_it_is_read_gets_a_sentence(odradek, topics, archive, monkeypatch):
    topic = topics.create(partitions=1)
    topics.fill(topic, [b'{"n": 1}'])
    odradek("archive", topic, "--to", str(archive))
    pinned = Tables._history

    def vacuum_then(self, name):
        found = pinned(self, name)
        for file in found.files:
            (archive / topic / file.path).unlink()
        return found

    monkeypatch.setattr(Tables, "_history", vacuum_then)
    done = odradek("sql", f'SELECT * FROM "{topic}"', "--archive", str(archive))
    assert done.returncode == 1 and "Begin again with the archive's newest version" in done.stderr


def test_topics_and_files_are_joined(sql, orders, tmp_path):
    names = tmp_path / "names.csv"
    names.write_text("kind,name\norder,Order\nview,View\n")
    query = f"SELECT name, count(*) AS n FROM orders JOIN '{names}' USING (kind) GROUP BY name ORDER BY name"
    assert sql(query) == [{"name": "Order", "n": 20}, {"name": "View", "n": 20}]
    twice = "WITH a AS (SELECT * FROM orders) SELECT count(*) AS n FROM a JOIN orders o ON o.id = a.id"
    assert sql(twice) == [{"n": 60}]
    assert sql("WITH orders AS (SELECT * FROM orders WHERE id < 7) SELECT count(*) AS n FROM orders") == [
        {"n": 7}
    ]


def test_a_result_is_written_to_a_file(odradek, sql, orders, tmp_path):
    file = tmp_path / "out.parquet"
    assert odradek("sql", f"COPY (SELECT id FROM orders) TO '{file}'").stdout == ""
    assert sql(f"SELECT count(*) AS n FROM '{file}'") == [{"n": 60}]


def test_bad_queries_get_a_sentence(odradek, orders):
    def problem(*arguments: str) -> str:
        done = odradek("sql", *arguments)
        assert done.returncode != 0 and "Traceback" not in done.stderr
        return done.stderr

    assert "there is no topic, archive or file 'absent'" in problem("SELECT * FROM absent")
    assert "error: syntax error" in problem("SELEC 1")
    assert "the query is empty" in problem(";")
    assert "in double quotes" not in problem("SELECT * FROM orders WHERE")
    assert "Names with dots or dashes are written in double quotes" in problem("SELECT * FROM my-orders")
    assert "Names with dots or dashes are written in double quotes" in problem("SELECT * FROM my.orders")
    for change in ("INSERT INTO orders VALUES (1)", "DROP VIEW orders", "UPDATE orders SET id = 1"):
        assert "are read by SQL, not changed: 'odradek produce' writes records" in problem(change)
    assert "name others with --schema" in problem("SELECT colour FROM orders")
    assert "--archive-only needs --archive" in problem("SELECT 1", "--archive-only")
    assert "there is no archive of orders at /nowhere" in problem(
        "SELECT * FROM orders", "--archive", "/nowhere"
    )
    assert "is not a time" in problem("SELECT 1", "--from", "yesterday")


def test_large_topics_are_decoded_by_the_kernel(sql, orders, monkeypatch):
    monkeypatch.setattr(reading, "SMALL", 0)
    assert sql("SELECT sum(id) AS n, max(_timestamp) AS t FROM orders") == [
        {"n": sum(range(60)), "t": "2023-11-14T22:23:10+00:00"}
    ]
