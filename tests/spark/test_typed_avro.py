"""Avro decoded by the kernel: what our decoder in plain Python gives, for generated records and damaged ones."""

import json
import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from odradek.spark.typed import avro, decoders
from odradek.spark.typed.avro import AvroError, AvroSchema
from odradek.spark.typed.decoders import AvroDecoder
from tests.schema_registry import serving
from tests.spark.typed_values import values_of

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "small", "type": ["int", "null"]},
            {"name": "item", "type": ["null", "string"]},
            {"name": "flag", "type": "boolean"},
            {"name": "amount", "type": "double"},
            {"name": "weight", "type": "float"},
            {"name": "raw", "type": ["null", "bytes"]},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "exact", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
            },
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "Bé"]}},
            {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
            {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
            {"name": "extra", "type": {"type": "map", "values": "int"}},
            {
                "name": "lines",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Line",
                        "fields": [
                            {"name": "kind", "type": "Kind"},
                            {"name": "n", "type": {"type": "array", "items": "long"}},
                        ],
                    },
                },
            },
        ],
    }
)
LINE = StructType().add("kind", StringType()).add("n", ArrayType(LongType()))
COLUMNS = (
    StructType()
    .add("id", LongType())
    .add("small", IntegerType())
    .add("item", StringType())
    .add("flag", BooleanType())
    .add("amount", DoubleType())
    .add("weight", FloatType())
    .add("raw", BinaryType())
    .add("day", DateType())
    .add("at", TimestampType())
    .add("exact", TimestampType())
    .add("price", DecimalType(10, 2))
    .add("kind", StringType())
    .add("code", BinaryType())
    .add("tags", ArrayType(StringType()))
    .add("extra", MapType(StringType(), IntegerType()))
    .add("lines", ArrayType(LINE))
)


def kind() -> pa.DataType:
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(COLUMNS, timezone="UTC")


def zigzag(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def sized(value: bytes) -> bytes:
    return zigzag(len(value)) + value


def blocks(entries: list[bytes]) -> bytes:
    """The first by itself, the others in a block that has its size."""
    out = zigzag(1) + entries[0] if entries else b""
    rest = b"".join(entries[1:])
    if len(entries) > 1:
        out += zigzag(-len(entries[1:])) + zigzag(len(rest)) + rest
    return out + zigzag(0)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).map(str.encode)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
INTS = st.integers(-(1 << 31), (1 << 31) - 1)
ENUM = st.integers(0, 1).map(zigzag)
DECIMALS = st.integers(-(10**10) + 1, 10**10 - 1).map(
    lambda number: sized(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))
)


def nullable(values: st.SearchStrategy[bytes], null: int) -> st.SearchStrategy[bytes]:
    return st.just(zigzag(null)) | values.map(lambda value: zigzag(1 - null) + value)


RECORDS = st.tuples(
    LONGS.map(zigzag),
    nullable(INTS.map(zigzag), 1),
    nullable(TEXT.map(sized), 0),
    st.sampled_from([b"\0", b"\1"]),
    st.floats(allow_nan=False).map(lambda number: struct.pack("<d", number)),
    st.floats(width=32, allow_nan=False).map(lambda number: struct.pack("<f", number)),
    nullable(st.binary(max_size=5).map(sized), 0),
    st.integers(-719162, 2932896).map(zigzag),
    st.integers(-62135596800000, 253402300799999).map(zigzag),
    st.integers(-62135596800000000, 253402300799999999).map(zigzag),
    DECIMALS,
    ENUM,
    st.binary(min_size=2, max_size=2),
    st.lists(nullable(TEXT.map(sized), 0), max_size=4).map(blocks),
    st.dictionaries(TEXT, INTS, max_size=4).map(
        lambda pairs: blocks([sized(key) + zigzag(value) for key, value in pairs.items()])
    ),
    st.lists(
        st.tuples(ENUM, st.lists(LONGS.map(zigzag), max_size=3).map(blocks)).map(b"".join), max_size=3
    ).map(blocks),
).map(b"".join)


def by_python(value: bytes) -> pa.Scalar | None:
    try:
        return pa.array([AvroSchema(SCHEMA).decode(value)], kind())[0]
    except (AvroError, pa.ArrowException, OverflowError):
        return None


def check(values: list[bytes | None]) -> None:
    typed, undecided = AvroDecoder(SCHEMA, "none", "").decode(values_of(values), kind(), pa.binary())
    typed.validate(full=True)
    for value, found, left in zip(values, typed, undecided, strict=True):
        expected = None if value is None else by_python(value)
        assert found.is_valid == (expected is not None)
        assert left.as_py() == (value if expected is None else None)
        if expected is not None:
            assert repr(found.as_py()) == repr(expected.as_py()), value  # NaN does not equal itself


@settings(max_examples=150, deadline=None)
@given(values=st.lists(RECORDS | st.none(), min_size=1, max_size=10))
def test_generated_records(values):
    check(values)


@settings(max_examples=300, deadline=None)
@given(value=RECORDS, data=st.data())
def test_damaged_records(value, data):
    at = data.draw(st.integers(0, len(value) - 1))
    other = bytes([data.draw(st.integers(0, 255))])
    check([value[:at] + other + value[at + 1 :], value[:at], value + other, value])


def a_record(number: int) -> bytes:
    plain = zigzag(number) + zigzag(1) + zigzag(0) + b"\1" + struct.pack("<df", 2.5, 0.5) + zigzag(0)
    plain += zigzag(1) + zigzag(1000) + zigzag(1000) + sized(b"\1\0") + zigzag(1) + b"xy"
    return plain + zigzag(0) * 3


def test_what_follows_the_schema_needs_no_python(monkeypatch):
    def refuse(*_):
        raise AssertionError("the kernel left a plain record to Python")

    monkeypatch.setattr(avro.Decoder, "decode", refuse)
    values = values_of([a_record(number) for number in range(100)])
    typed, undecided = AvroDecoder(SCHEMA, "none", "").decode(values, kind(), pa.binary())
    assert undecided.null_count == 100
    first = typed[7].as_py()
    assert (first["id"], first["price"], first["kind"], first["code"]) == (7, Decimal("2.56"), "Bé", b"xy")
    assert first["at"] == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=1)


def test_a_registrys_frame_without_a_registry():
    framed = [b"\0\0\0\0\5" + a_record(1), a_record(2), b"\0", b"\1\0\0\0\5" + a_record(3)]
    typed, undecided = AvroDecoder(SCHEMA, "registry", "").decode(values_of(framed), kind(), pa.binary())
    assert [one["id"].as_py() for one in typed if one.is_valid] == [1]
    assert undecided.to_pylist() == [None, *framed[1:]]


def test_a_record_of_another_schema_goes_through_the_registry(monkeypatch):
    older = json.loads(SCHEMA)
    older["fields"] = older["fields"][:1]
    for field in (newer := json.loads(SCHEMA))["fields"][1:]:
        field["default"] = None
    schemas = {"schemas/ids/1": json.dumps(older), "schemas/ids/2": json.dumps(newer)}
    asked = []

    def fetch(registry: str, path: str) -> str:
        asked.append(path)
        if path not in schemas:
            raise AvroError(f"the registry has no {path}")
        return schemas[path]

    monkeypatch.setattr(avro, "fetch_schema", fetch)
    decoder = AvroDecoder(json.dumps(newer), "registry", "http://registry")
    values = [b"\0\0\0\0\1" + zigzag(10), b"\0\0\0\0\2" + a_record(20), b"\0\0\0\0\3" + a_record(30)]
    typed, undecided = decoder.decode(values_of(values * 2), kind(), pa.binary())
    assert [one["id"].as_py() for one in typed if one.is_valid] == [10, 20] * 2
    assert undecided.to_pylist() == [None, None, values[2]] * 2
    assert asked.count("schemas/ids/2") == 1
    assert decoders.avro is avro


@pytest.mark.parametrize("count", [-(1 << 63), (1 << 62), 5])
def test_a_count_of_elements_that_are_not_there(count):
    value = a_record(1)[:-3] + zigzag(count) + zigzag(0) * 2
    check([value, a_record(2)])


def test_a_registry_with_a_user_and_a_password():
    """They are in its URL; without a port they would be taken for one."""
    assert avro.with_login("http://localhost:8081/a") == ("http://localhost:8081/a", {})
    found = avro.with_login("https://shop:p%40s%2Fs@registry/apis?x=1")
    assert found == ("https://registry/apis?x=1", {"Authorization": "Basic c2hvcDpwQHMvcw=="})
    with serving({"schemas/ids/7": "long"}) as address:
        url = address.replace("//", "//shop:secret@")
        assert avro.fetch_schema(url, "schemas/ids/7") == '"long"'
