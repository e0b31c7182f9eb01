"""Topics written in Avro: schemas made of columns, given ones, and a registry by confluent-kafka's client."""

import io
import json
import re
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from fastavro import schemaless_reader

from odradek.pipeline.check.checking import check
from odradek.pipeline.check.testing import all_tests, run_test
from odradek.pipeline.file.errors import PipelineError, Unreachable
from odradek.pipeline.file.reading import load
from odradek.pipeline.kinds.schema_registry import Registry as RegistryClient
from odradek.pipeline.rows.avro_output import whole
from tests.pipeline.http_servers import Asked, Response, serving
from tests.pipeline.lab import Lab

SHOP = """
[sources.orders]
topic = "{orders}"
schema = "id BIGINT NOT NULL, item STRING, amount DOUBLE"
[transforms.rows]
sql = "SELECT {columns} FROM orders"
[sinks.out]
from = "rows"
topic = "{out}"
format = "avro"
key = "id"
{more}
"""
PLAIN = "id, item, amount"
GIVEN = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "amount", "type": ["null", "double"], "default": None},
        {"name": "since", "type": "int", "default": 2026},
    ],
}


class Registry:
    """A schema registry that can do what its client asks for."""

    def __init__(self) -> None:
        self.schemas: list[str] = []
        self.subjects: dict[str, list[int]] = {}
        self.is_compatible = True

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if path.startswith("/compatibility"):
            return 200, {"is_compatible": self.is_compatible}
        text = json.dumps(json.loads(body["schema"]), sort_keys=True)
        subject = re.split(r"[/?]", path)[2]
        known = self.subjects.get(subject, [])
        number = self.schemas.index(text) + 1 if text in self.schemas else 0
        if "/versions" in path:
            if not number:
                self.schemas.append(text)
                number = len(self.schemas)
            if number not in known:
                self.subjects[subject] = [*known, number]
        elif number not in known:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        version = self.subjects[subject].index(number) + 1
        return 200, {"id": number, "version": version, "subject": subject, "schema": body["schema"]}

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        parts = re.split(r"[/?]", path)
        if parts[1:3] == ["schemas", "ids"]:
            return 200, {"schema": self.schemas[int(parts[3]) - 1]}
        subject = parts[2]
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": "Subject not found"}
        number = self.subjects[subject][-1]
        found = {"id": number, "version": len(self.subjects[subject]), "subject": subject}
        return 200, found | {"schema": self.schemas[number - 1]}

    def answer(self, asked: Asked) -> Response:
        found = (
            self.get(asked.path) if asked.method == "GET" else self.post(asked.path, json.loads(asked.body))
        )
        return found[0], {"Content-Type": "application/json"}, json.dumps(found[1]).encode()


def decoded(value: bytes, schema: Any) -> Any:
    from fastavro import parse_schema

    return schemaless_reader(io.BytesIO(value), parse_schema(schema), None)


def deserialized(lab: Lab, topic: str, registry: str) -> list[Any]:
    """The values of a topic, as a consumer with Confluent's deserializer has them."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    read = AvroDeserializer(SchemaRegistryClient({"url": registry}))
    context = SerializationContext(topic, MessageField.VALUE)
    return [read(record.value(), context) for record in lab.records(topic)]


EVERYTHING = (
    "id, item, CAST(1.25 AS DECIMAL(10,2)) AS money, DATE '2026-01-02' AS day, "
    "TIMESTAMP '2026-01-02 03:04:05.000006Z' AS at, "
    "TIMESTAMP_NTZ '2026-01-02 03:04:05' AS wall, CAST('x' AS BINARY) AS bytes, array(1, NULL) AS numbers, "
    "map('a', 1.5D) AS shares, named_struct('deep', named_struct('b', true)) AS nested, CAST(7 AS SMALLINT) AS small"
)


def test_a_schema_is_made_of_the_columns_and_a_test_reads_what_it_wrote(spark, lab: Lab):
    names = {"orders": lab.topic(1), "out": lab.topic(1)}
    lab.fill(names["orders"], [{"id": 1, "item": "spool"}, {"id": 2}], 1)
    text = SHOP.format(**names, columns=EVERYTHING, more="")
    text += '[[tests]]\ngiven.orders = [{ id = 3, item = "x" }]\n'
    text += 'expect.out = [{ key = "3", value = { id = 3, item = "x", small = 7 } }]\n'
    pipeline = lab.pipeline(text)
    ((document, case),) = all_tests(pipeline)
    assert run_test(spark, pipeline, document, case).problems == []
    lab.run_well(spark, pipeline)
    from odradek.pipeline.check.weaving import BatchReader, Weaver
    from odradek.pipeline.rows.avro_output import schema_of

    session = spark.newSession()
    rows = Weaver(session, pipeline, BatchReader(session, pipeline)).weave().rows["rows"]
    schema = json.loads(schema_of(rows.schema, "out"))
    found = [decoded(one.value(), schema) for one in lab.records(names["out"])]
    assert found[0] == {
        "id": 1,
        "item": "spool",
        "money": Decimal("1.25"),
        "day": date(2026, 1, 2),
        "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
        "wall": datetime(2026, 1, 2, 3, 4, 5),
        "bytes": b"x",
        "numbers": [1, None],
        "shares": {"a": 1.5},
        "nested": {"deep": {"b": True}},
        "small": 7,
    }
    assert found[1]["item"] is None


def test_a_given_schema_is_followed_and_a_null_that_it_has_not_is_set_aside(spark, lab: Lab):
    names = {"orders": lab.topic(1), "out": lab.topic(1)}
    (lab.directory / "order.avsc").write_text(json.dumps(GIVEN))
    lab.fill(names["orders"], [{"id": 1, "item": "a", "amount": 1.5}, {"id": 2}, {"id": 3, "item": "c"}], 1)
    more = 'schema_file = "order.avsc"\n[dead_letters]\npath = "dead"\nlimit = 1\n'
    lab.run_well(spark, lab.pipeline(SHOP.format(**names, columns=PLAIN, more=more)))
    found = [decoded(one.value(), GIVEN) for one in lab.records(names["out"])]
    assert found == [
        {"id": 1, "item": "a", "amount": 1.5, "since": 2026},
        {"id": 3, "item": "c", "amount": None, "since": 2026},
    ]
    letters = [json.loads(line) for file in (lab.directory / "dead").rglob("*.json") for line in file.open()]
    assert (
        len(letters) == 1 and "the Avro schema does not take the row: 'item' is null" in letters[0]["reason"]
    )
    for columns, problem in (
        ("id, item, amount, 1 AS more", "the schema has no field 'more'"),
        ("id, amount", "the schema needs the field 'item'"),
        (
            "id, item, CAST(amount AS STRING) AS amount",
            "the column 'amount' is string, and the schema's field double",
        ),
    ):
        with pytest.raises(PipelineError, match=problem):
            check(spark, lab.pipeline(SHOP.format(**names, columns=columns, more=more)), offline=True)
    with pytest.raises(PipelineError, match="'a b' is not a name in Avro"):
        check(spark, lab.pipeline(SHOP.format(**names, columns="id, 1 AS `a b`", more="")), offline=True)


def test_a_row_that_deletes_need_not_follow_the_schema(spark, lab: Lab):
    """Spark calls Python functions for all rows, whatever CASE is around them."""
    names = {"orders": lab.topic(1), "out": lab.topic(1)}
    lab.fill(names["orders"], [{"id": 1, "item": "a"}, {"id": 2, "item": "b"}, {"id": 1}], 1)
    more = "schema = '" + json.dumps(GIVEN) + '\'\ndelete_when = "item IS NULL"\n'
    lab.run_well(spark, lab.pipeline(SHOP.format(**names, columns=PLAIN, more=more)))
    found = [(one.key(), one.value()) for one in lab.records(names["out"])]
    assert [key for key, _ in found] == [b"1", b"2", b"1"] and found[2][1] is None
    assert decoded(found[0][1], GIVEN)["item"] == "a"


DEEP = """{"type": "record", "name": "r", "fields": [
    {"name": "yes", "type": ["null", "boolean"], "default": null},
    {"name": "inner", "type": {"type": "record", "name": "i", "fields": [{"name": "yes", "type": "boolean"}]}},
    {"name": "many", "type": {"type": "array", "items": "boolean"}, "default": []},
    {"name": "named", "type": ["null", {"type": "map", "values": {"type": "boolean"}}], "default": null}]}"""


@pytest.mark.parametrize(
    ("more", "is_whole"),
    [
        ({}, True),
        ({"yes": None, "many": [True, False], "named": {"a": True}}, True),
        ({"inner": {"yes": None}}, False),
        ({"many": [True, None]}, False),
        ({"named": {"a": None}}, False),
        ({"named": None, "inner": None}, True),  # fastavro refuses that
    ],
)
def test_a_boolean_that_is_null_within_a_row_is_not_false(more: dict[str, Any], is_whole: bool):
    check = whole(json.loads(DEEP))
    assert check is not None and check({"inner": {"yes": True}} | more) is is_whole
    assert whole(GIVEN) is None, "most schemas need no check"


def test_rows_that_a_schema_does_not_take_are_set_aside_by_the_sink(spark, lab: Lab):
    """They have a null within them, or a text that the enumeration lacks."""
    names = {"orders": lab.topic(1), "out": lab.topic(1)}
    symbol = {"type": "enum", "name": "k", "symbols": ["a", "b"]}
    inner = {"type": "record", "name": "i", "fields": [{"name": "yes", "type": "boolean"}]}
    fields = [
        {"name": "id", "type": "long"},
        {"name": "item", "type": symbol},
        {"name": "inner", "type": inner},
    ]
    schema = json.dumps({"type": "record", "name": "r", "fields": fields})
    lab.fill(names["orders"], [{"id": 1, "item": "a"}, {"id": 2, "item": "b"}, {"id": 3, "item": "c"}], 1)
    columns = "id, item, named_struct('yes', IF(id = 2, NULL, true)) AS inner"
    more = f"schema = '{schema}'\n[dead_letters]\npath = \"dead\"\nlimit = 1\n"
    lab.run_well(spark, lab.pipeline(SHOP.format(**names, columns=columns, more=more)))
    found = [decoded(one.value(), json.loads(schema)) for one in lab.records(names["out"])]
    assert found == [{"id": 1, "item": "a", "inner": {"yes": True}}]
    letters = [json.loads(line) for file in (lab.directory / "dead").rglob("*.json") for line in file.open()]
    assert {one["stage"] for one in letters} == {"sink"}
    reasons = {json.loads(one["text"])["id"]: one["reason"] for one in letters}
    assert "the Avro schema does not take the row: a boolean in it is null" in reasons[2]
    assert "the Avro schema does not take the row: 'c' is not in list" in reasons[3]


@pytest.mark.parametrize(
    ("status", "body", "kind", "problem"),
    [
        (404, b"<html>", PipelineError, "there is no registry at this address (HTTP 404): check its path"),
        (503, b"<html>", Unreachable, "the registry does not respond: HTTP 503"),
        (429, b"{}", Unreachable, "the registry does not respond: HTTP 429"),
        (
            401,
            b'{"error_code": 40101, "message": "no"}',
            PipelineError,
            "the registry refuses (HTTP 401): no",
        ),
    ],
)
def test_what_a_registry_that_does_not_do_it_means(
    write, status: int, body: bytes, kind: type[PipelineError], problem: str
):
    with serving(lambda asked: (status, {"Content-Type": "application/json"}, body)) as address:
        with pytest.raises(PipelineError) as caught:
            registry_at(write, address.replace("//", "//shop:${SECRET}@")).find('"long"')
        assert type(caught.value) is kind and problem in str(caught.value)
        assert "p%40ss" not in str(caught.value)


def registry_at(write, url: str, secret: str = "p%40ss") -> RegistryClient:
    file = f'[sources.a]\ntopic = "a"\nformat = "text"\n[sinks.out]\nfrom = "a"\ntopic = "b"\nregistry = "{url}"\n'
    pipeline = load(write(file + 'format = "avro"\n'), {"SECRET": secret})
    return RegistryClient(pipeline, ("sinks", "out"), pipeline.sinks["out"].target.avro)


def test_a_password_of_a_registry_may_have_any_character(write):
    asked = []

    def answer(request: Asked) -> Response:
        asked.append(request.headers.get("Authorization"))
        return 404, {"Content-Type": "application/json"}, b'{"error_code": 40403, "message": "no"}'

    with serving(answer) as address:
        url = address.replace("//", "//shop:${SECRET}@")
        for secret in ("p%40s", "p@s", "p%2Fs", "p/s"):
            assert registry_at(write, url, secret).find('"long"') is None
    assert asked == ["Basic c2hvcDpwQHM="] * 2 + ["Basic c2hvcDpwL3M="] * 2


def test_no_message_has_the_password_of_a_registry(write):
    for url, problem in (
        ("ftp://shop:${SECRET}@localhost", "must be a URL that begins with http"),
        ("http://shop:${SECRET}@127.0.0.1:1", "the registry does not respond"),
    ):
        with pytest.raises(PipelineError, match=problem) as caught:
            registry_at(write, url).find('"long"')
        assert "p%40ss" not in str(caught.value)


def test_a_registry_learns_the_schema_if_that_is_asked_for(spark, lab: Lab):
    names = {"orders": lab.topic(1), "out": lab.topic(1)}
    lab.fill(names["orders"], [{"id": 1, "item": "a"}], 1)
    registry, subject = Registry(), f"{names['out']}-value"
    with serving(registry.answer) as address:
        text = SHOP.format(**names, columns=PLAIN, more=f'registry = "{address}"\n')
        with pytest.raises(PipelineError, match=f"the registry has no subject '{subject}'"):
            check(spark, lab.pipeline(text))
        asks = text + "register = true\n"
        check(spark, lab.pipeline(asks))
        assert registry.schemas == [], "a check registers nothing"
        lab.run_well(spark, lab.pipeline(asks))
        assert registry.subjects == {subject: [1]}
        lab.fill(names["orders"], [{"id": 2, "item": "b"}], 1)
        lab.run_well(spark, lab.pipeline(text))
        found = [one.value() for one in lab.records(names["out"])]
        assert [one[:5] for one in found] == [b"\0\0\0\0\1"] * 2
        assert [one["item"] for one in deserialized(lab, names["out"], address)] == ["a", "b"]
        registry.is_compatible = False
        other = asks.replace(PLAIN, "id, 1 AS one").replace(PLAIN, "id, 1 AS one")
        with pytest.raises(PipelineError, match="the schema is not compatible with the newest one"):
            check(spark, lab.pipeline(other))
        given = text + "schema = '" + json.dumps(GIVEN) + "'\n"
        with pytest.raises(PipelineError, match="does not have this schema: set register = true"):
            check(spark, lab.pipeline(given))
    with (
        pytest.MonkeyPatch.context() as patched,
        pytest.raises(PipelineError, match=r"pip install '.\[avro\]'"),
    ):
        patched.setitem(sys.modules, "confluent_kafka.schema_registry", None)
        check(spark, lab.pipeline(text), offline=True)
    with pytest.raises(PipelineError, match="the registry does not respond"):
        check(spark, lab.pipeline(text))
