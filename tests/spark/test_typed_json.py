"""Tests that what the kernel decides is what Spark's `from_json` gives: for generated documents, and for traps."""

import base64
import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.spark.typed_traps import LITERALS, STRUCTURES
from tests.spark.typed_values import NESTED, SCALARS, SCHEMA, differences

FORMS = (
    '{{"{name}":{value}}}',
    '{{"a{name}":[{value},null,{value}]}}',
    '{{"m{name}":{{"k":{value},"l":null}}}}',
)


def trap_documents() -> list[bytes]:
    documents = [
        form.format(name=name, value=value) for form in FORMS for name in SCALARS for value in LITERALS
    ]
    documents += [f'{{"s":{{"{name}":{value}}}}}' for name in SCALARS for value in LITERALS]
    return [document.encode() for document in documents]


@pytest.mark.parametrize("zone", ["UTC", "+05:30", "Europe/Berlin"])
def test_every_literal_for_every_type(spark, zone):
    documents = trap_documents()
    decided, wrong = differences(spark, documents, SCHEMA, zone)
    assert wrong == []
    assert decided > len(documents) / 20


def test_structures(spark):
    decided, wrong = differences(spark, STRUCTURES, SCHEMA)
    assert wrong == []
    assert decided > len(STRUCTURES) / 4


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
WHOLES = {"v_tinyint": 7, "v_smallint": 15, "v_int": 31, "v_bigint": 63}
FINITE = st.floats(allow_nan=False, allow_infinity=False)
TIMES = st.datetimes().map(lambda at: at.isoformat())
GENERATED = {
    "v_string": TEXT,
    "v_boolean": st.booleans(),
    **{name: st.integers(-(1 << bits), (1 << bits) - 1) for name, bits in WHOLES.items()},
    "v_float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "v_double": FINITE,
    "v_decimal": st.integers(-(10**10) + 1, 10**10 - 1).map(lambda number: number / 100),
    "v_whole": st.integers(-(10**6), 10**6),
    "v_wide": st.integers(-(10**29), 10**29)
    | st.integers(-(10**12), 10**12).map(lambda number: number / 1000),
    "v_date": st.dates().map(str),
    "v_timestamp": st.one_of(TIMES.map(lambda at: at + "Z"), TIMES, TIMES.map(lambda at: at + "-03:30")),
    "v_local": TIMES,
    "v_binary": st.binary(max_size=9).map(lambda value: base64.b64encode(value).decode()) | TEXT,
}
assert GENERATED.keys() == SCALARS.keys()
ZONES = st.sampled_from(["UTC", "+05:30", "Europe/Berlin", "America/St_Johns"])
NESTED_VALUES = {
    "inner": st.fixed_dictionaries(
        {},
        optional={
            "x": st.integers(-9, 9),
            "deep": st.fixed_dictionaries(
                {"y": TEXT, "z": st.lists(st.none() | st.integers(0, 99), max_size=4)}
            ),
        },
    ),
    "rows": st.lists(
        st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "q": TEXT,
                "n": st.lists(st.none() | st.lists(st.integers(0, 9), max_size=3), max_size=3),
                "m": st.dictionaries(
                    TEXT, st.lists(st.just({"d": "2026-01-01"}) | st.none(), max_size=2), max_size=3
                ),
                "unknown": TEXT,
            },
        ),
        max_size=3,
    ),
}
OPTIONAL = {name: st.none() | one for name, one in (GENERATED | NESTED_VALUES).items()}
OPTIONAL |= {f"a{name}": st.lists(st.none() | one, max_size=3) for name, one in GENERATED.items()}
OPTIONAL |= {f"m{name}": st.dictionaries(TEXT, one, max_size=3) for name, one in GENERATED.items()}
OPTIONAL["unknown"] = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.fixed_dictionaries({}, optional=OPTIONAL)
DOCUMENTS = st.builds(
    lambda value, ascii_only, indent: json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode(),
    OBJECTS,
    st.booleans(),
    st.sampled_from([None, 1]),
)
FEW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@FEW
@given(documents=st.lists(DOCUMENTS, min_size=4, max_size=12), zone=ZONES)
def test_generated_documents(spark, documents, zone):
    _, wrong = differences(spark, documents, SCHEMA, zone)
    assert wrong == []


@FEW
@given(data=st.data(), documents=st.lists(DOCUMENTS, min_size=4, max_size=12))
def test_damaged_documents(spark, data, documents):
    """A byte of each is replaced, left out or repeated."""
    damaged = []
    for document in documents:
        at = data.draw(st.integers(0, len(document) - 1))
        how = data.draw(
            st.sampled_from([b"", document[at : at + 1] * 2, b'"', b",", b"}", b"0", b"\\", b"\xff", b"e"])
        )
        damaged.append(document[:at] + how + document[at + 1 :])
    _, wrong = differences(spark, damaged, SCHEMA)
    assert wrong == []


def test_plain_documents_are_decided():
    """Most topics have only documents that need no second look, whatever Spark would say."""
    from pyspark.sql.types import StructType

    from tests.spark.typed_values import by_kernel

    schema = StructType.fromJson(
        {
            "type": "struct",
            "fields": [_field("id", "long"), _field("at", "timestamp"), _field("price", "double")],
        }
    )
    documents = [
        json.dumps(
            {"id": number, "at": "2026-01-01T10:00:00.5Z", "price": math.sqrt(number), "more": [{}]}
        ).encode()
        for number in range(1000)
    ]
    _, undecided = by_kernel(documents, schema, None)
    assert undecided.null_count == 1000


def _field(name: str, kind: str) -> dict:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def test_the_schema_of_nested_fields_is_used(spark):
    documents = [b'{"inner":{"x":1},"rows":[{"q":"a"}]}', b'{"inner":{"x":1.5}}']
    assert differences(spark, documents, NESTED) == (1, [])
