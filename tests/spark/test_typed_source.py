"""The source with `valueFormat`: the rows that Spark's functions give for the plain one, batch and stream."""

import pytest
from pyspark.sql import functions as F

from odradek.spark import load_typed

SCHEMA = "id BIGINT NOT NULL, name STRING, price DECIMAL(10,2), at TIMESTAMP, `odd name` ARRAY<STRUCT<x: INT NOT NULL>>"
VALUES = [
    b'{"id":1,"name":"caf\\u00e9","price":12.50,"at":"2026-01-01T10:00:00","odd name":[{"x":1},null,{"x":2}]}',
    b'{"id":"2","name":3}',
    b'{"id":3,"id":4}',
    b'{"name":"no id"}',
    b'{"odd name":[{}],"id":5}',
    b"not JSON",
    b"",
    b'{"id":6,"at":"2026-07-01 10:00"}',
    b'{"id":7,"name":"\xff"}',
]


@pytest.fixture(scope="module")
def topic(topics):
    name = topics.create()
    topics.fill(name, VALUES, partition=lambda index: index % 2)
    return name


def rows(frame) -> list:
    return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_json_is_what_from_json_gives(spark, reading, broker, topic, zone):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        plain = reading(subscribe=topic)
        expected = plain.withColumn("value", F.from_json(F.col("value").cast("string"), SCHEMA))
        reader = spark.read.format("odradek").option("kafka.bootstrap.servers", broker.bootstrap)
        typed = load_typed(reader.option("subscribe", topic), "json", SCHEMA)
        assert typed.schema == expected.schema
        assert rows(typed) == rows(expected)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_only_undecided_values_keep_their_bytes(reading, topic):
    found = rows(reading(subscribe=topic, valueFormat="json", valueSchema=SCHEMA, timeZone="UTC"))
    undecided = {bytes(row.undecided) for row in found if row.undecided is not None}
    assert undecided == set(VALUES[1:])
    assert [row.value.name for row in found if row.value is not None] == ["café"]


def test_a_schema_as_json_and_headers(reading, topic):
    from pyspark.sql.types import StructType

    as_json = StructType.fromDDL(SCHEMA).json()
    typed = reading(
        subscribe=topic, valueFormat="json", valueSchema=as_json, includeHeaders="true", timeZone="Z"
    )
    assert typed.columns[-2:] == ["headers", "undecided"]
    assert typed.select("value.`odd name`").where("value is not null").collect()[0][0] is not None
    assert typed.schema["value"].dataType == StructType.fromDDL(SCHEMA)


def test_text(spark, reading, broker, topic):
    reader = spark.read.format("odradek").option("kafka.bootstrap.servers", broker.bootstrap)
    typed = load_typed(reader.option("subscribe", topic), "text")
    raw = typed.withColumn("value", F.col("value").cast("binary"))
    assert rows(raw) == rows(reading(subscribe=topic))
    undecided = reading(subscribe=topic, valueFormat="text").where("undecided IS NOT NULL").collect()
    assert [bytes(row.undecided) for row in undecided] == [VALUES[-1]]


def test_a_stream(spark, broker, topic, tmp_path):
    reader = spark.readStream.format("odradek").option("kafka.bootstrap.servers", broker.bootstrap)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    typed = load_typed(reader, "json", SCHEMA).selectExpr("value.id", "value.name")
    query = (
        typed.writeStream.format("memory")
        .queryName("typed_stream")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = {row.id for row in spark.table("typed_stream").collect()}
    assert found == {1, 4, 5, 6, 7, None}


@pytest.mark.parametrize(
    "options, problem",
    [
        ({"valueFormat": "json"}, "option 'valueSchema': valueFormat json needs it"),
        ({"valueFormat": "xml"}, "option 'valueFormat': 'xml' is not one of raw, json"),
        ({"valueFormat": "text", "valueSchema": "id INT"}, "valueFormat text has no schema"),
        ({"valueSchema": "id INT"}, "valueFormat raw has no schema"),
    ],
)
def test_options_that_do_not_fit(reading, topic, options, problem):
    with pytest.raises(Exception, match=problem):
        reading(subscribe=topic, **options)


def test_a_schema_that_is_none(reading, topic):
    with pytest.raises(Exception, match="PARSE"):
        reading(subscribe=topic, valueFormat="json", valueSchema="id BIGINT,, name")


AVRO = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"name","type":["null","string"]}]}'


def test_avro_behind_a_registrys_frame(spark, broker, topics):
    name = topics.create(partitions=1)
    topics.fill(name, [b"\0\0\0\0\1\x0e\x02\x02x", b"\0\0\0\0\1\x10\0", b"\x0e\x02\x02x", b"\0\0\0\0\1\x0e"])
    reader = spark.read.format("odradek").option("kafka.bootstrap.servers", broker.bootstrap)
    typed = load_typed(reader.option("subscribe", name).option("valueFraming", "registry"), "avro", AVRO)
    assert [row.value for row in rows(typed)] == [(7, "x"), (8, None), None, None]


@pytest.mark.parametrize(
    "options, problem",
    [
        (
            {"valueFormat": "avro", "valueSchema": "id INT"},
            "option 'valueSchema': the Avro schema is not JSON",
        ),
        (
            {"valueFormat": "text", "valueFraming": "registry"},
            "option 'valueFraming': it is for valueFormat avro",
        ),
    ],
)
def test_options_of_avro_that_do_not_fit(reading, topic, options, problem):
    with pytest.raises(Exception, match=problem):
        reading(subscribe=topic, **options)
