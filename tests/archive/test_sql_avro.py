"""`odradek sql` over values in Avro: by a schema in a file, and by a registry."""

import io
import json
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer

from odradek.sql import tables
from tests.archive.test_sql import rows
from tests.schema_registry import serving

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["order", "return"]}},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [
                {"name": "n", "type": "int"}, {"name": "kind", "type": ["null", "Kind"]}]}}},
    ],
}  # fmt: skip
OLDER = {"type": "record", "name": "Order", "fields": ORDER["fields"][:1]}
NEWER = {
    "type": "record",
    "name": "Order",
    "fields": [ORDER["fields"][0], {"name": "note", "type": ["null", "string"], "default": None}],
}


def order(number: int) -> dict[str, Any]:
    from datetime import UTC, date, datetime
    from decimal import Decimal

    return {
        "id": number,
        "kind": ("order", "return")[number % 2],
        "price": None if number == 3 else Decimal(number) / 4,
        "at": datetime.fromtimestamp(1_700_000_000 + number, UTC),
        "day": date(2026, 1, 1 + number % 28),
        "tags": {"colour": "red"},
        "lines": [{"n": number, "kind": None}, {"n": 1, "kind": "order"}],
    }


def written(schema: dict, value: dict) -> bytes:
    output = io.BytesIO()
    fastavro.schemaless_writer(output, fastavro.parse_schema(schema), value)
    return output.getvalue()


def framed(number: int, schema: dict, value: dict) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + written(schema, value)


@pytest.fixture
def sql(odradek):
    return lambda *arguments: rows(odradek("sql", *arguments, "--format", "json"))


@pytest.fixture
def file(tmp_path) -> str:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(ORDER))
    return str(path)


@pytest.fixture(scope="package")  # as long as its broker
def plain(broker) -> str:
    from tests.spark.spark_topics import Topics

    topics = Topics(broker.bootstrap)
    topic = topics.create(partitions=2, name="plain-avro")
    values = [written(ORDER, order(number)) for number in range(10)]
    topics.fill(topic, [*values, None, b"\xff no Avro"], lambda index: index % 2)
    return topic


@pytest.mark.parametrize("small", [tables.SMALL, 0])
def test_values_are_decoded_by_a_schema_in_a_file(sql, plain, file, monkeypatch, small):
    monkeypatch.setattr(tables, "SMALL", small)
    columns = "id, kind, price, epoch_ms(\"at\") AS t, day, tags['colour'] AS c, lines[2].kind AS k"
    query = f'SELECT {columns} FROM "plain-avro"'
    found = sql(f"{query} WHERE id BETWEEN 2 AND 3 ORDER BY id", "--avro", file)
    same = {"c": "red", "k": "order"}
    assert found == [
        {"id": 2, "kind": "order", "price": "0.50", "t": 1_700_000_002_000, "day": "2026-01-03", **same},
        {"id": 3, "kind": "return", "price": None, "t": 1_700_000_003_000, "day": "2026-01-04", **same},
    ]
    counts = 'SELECT count(*) AS n, count(id) AS good, sum(price) AS total FROM "plain-avro"'
    assert sql(counts, "--avro", f"plain-avro={file}") == [{"n": 12, "good": 10, "total": "10.50"}]


def test_the_types_are_those_of_the_schema(sql, plain, file):
    types = 'typeof(price) AS p, typeof("at") AS t, typeof(lines) AS l'
    (found,) = sql(f'SELECT {types} FROM "plain-avro" LIMIT 1', "--avro", file)
    assert found == {
        "p": "DECIMAL(9,2)",
        "t": "TIMESTAMP WITH TIME ZONE",
        "l": "STRUCT(n INTEGER, kind VARCHAR)[]",
    }


def test_an_archive_is_decoded_too(sql, odradek, topics, archive, file):
    topic = topics.create(partitions=1, name="avro-history")
    topics.fill(topic, [written(ORDER, order(number)) for number in range(4)])
    assert odradek("archive", topic, "--to", str(archive)).returncode == 0
    topics.fill(topic, [written(ORDER, order(number)) for number in range(4, 7)])
    query = 'SELECT sum(id) AS n, count(DISTINCT id) AS d FROM "avro-history"'
    assert sql(query, "--archive", str(archive), "--avro", file) == [{"n": 21, "d": 7}]


def test_a_registry_gives_the_schemas_and_other_topics_stay_json(sql, topics):
    topic, other = (topics.create(partitions=1, name=name) for name in ("framed-avro", "framed-json"))
    values = [framed(1, OLDER, {"id": 1}), framed(2, NEWER, {"id": 2, "note": "new"}), b"\0\0\0\0\3?"]
    topics.fill(topic, [*values, None])
    topics.fill(other, [b'{"id": 2, "name": "two"}'])
    schemas = {
        "schemas/ids/1": OLDER,
        "schemas/ids/2": NEWER,
        "subjects/framed-avro-value/versions/latest": NEWER,
    }
    with serving(schemas) as url:
        query = 'SELECT id, note FROM "framed-avro" ORDER BY _offset'
        assert sql(query, "--schema-registry", url) == [
            {"id": 1, "note": None},
            {"id": 2, "note": "new"},
            {"id": None, "note": None},
            {"id": None, "note": None},
        ]
        joined = 'SELECT name, note FROM "framed-avro" JOIN "framed-json" USING (id)'
        assert sql(joined, "--schema-registry", url) == [{"name": "two", "note": "new"}]


def test_what_is_wrong_gets_a_sentence(odradek, topics, plain, file, tmp_path):
    def problem(*arguments: str) -> str:
        done = odradek("sql", *arguments)
        assert done.returncode != 0 and "Traceback" not in done.stderr
        return done.stderr

    query = 'SELECT id FROM "plain-avro"'
    bad = tmp_path / "bad.avsc"
    assert f"the Avro schema {bad} cannot be read: No such file" in problem(query, "--avro", str(bad))
    bad.write_text('{"type": "string"}')
    assert "is no Avro schema that can be used: the Avro schema must be a record" in problem(
        query, "--avro", str(bad)
    )
    bad.write_text('{"type": "record", "name": "N", "fields": [{"name": "x", "type": "double"}]}')
    wrong = problem(query, "--avro", str(bad))
    assert "none of 11 values of plain-avro can be read with its Avro schema:" in wrong
    assert "need --schema-registry" in wrong
    assert "does not give the schema of plain-avro" in problem(
        query, "--schema-registry", "http://127.0.0.1:9"
    )
    both = ("--schema", "id INT", "--avro", file)
    assert "values of all topics are JSON by --schema, and Avro by --avro" in problem(query, *both)
    assert "--avro is given twice for all topics" in problem(query, "--avro", file, "--avro", file)


def test_a_registry_that_stops_responding_gets_a_sentence(odradek, topics):
    topic = topics.create(partitions=1, name="registry-gone")
    topics.fill(topic, [framed(1, OLDER, {"id": 1}), framed(5, OLDER, {"id": 1})])

    class Broken(dict):
        def get(self, path: str) -> object:
            if path == "schemas/ids/5":
                raise ConnectionError("the registry stops here")
            return super().get(path)

    schemas = Broken({"schemas/ids/1": OLDER, "subjects/registry-gone-value/versions/latest": OLDER})
    with serving(schemas) as url:
        done = odradek("sql", 'SELECT sum(id) FROM "registry-gone"', "--schema-registry", url)
    assert done.returncode == 1 and f"the schema registry {url} does not respond" in done.stderr


@pytest.mark.parametrize("small", [tables.SMALL, 0])
def test_headers_are_a_column(sql, odradek, broker, topics, archive, monkeypatch, small):
    from odradek.sql import reading

    monkeypatch.setattr(reading, "SMALL", small)
    topic = topics.create(partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    headers = [("trace", b"7"), ("trace", b"8"), ("raw", b"\xff"), ("none", None)]
    producer.produce(topic, b"a", headers=headers)
    producer.produce(topic, b"b")
    assert producer.flush(30) == 0
    expected = [
        {"key": "trace", "value": "7"},
        {"key": "trace", "value": "8"},
        {"key": "raw", "value": "\\xFF"},
        {"key": "none", "value": None},
    ]
    query = f'SELECT _headers FROM "{topic}" ORDER BY _offset'
    assert sql(query) == [{"_headers": expected}, {"_headers": None}]
    assert odradek("archive", topic, "--to", str(archive)).returncode == 0
    assert sql(query, "--archive", str(archive)) == [{"_headers": expected}, {"_headers": None}]
    one = f"SELECT list_filter(_headers, lambda one: one.key = 'trace')[-1].value AS t FROM \"{topic}\""
    assert sql(one + " ORDER BY _offset")[0] == {"t": "8"}
