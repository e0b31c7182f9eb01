"""Tests that what the kernel decides is what Spark's `from_csv` gives."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.spark.typed_traps import LITERALS
from tests.spark.typed_values import SCALARS, differences

COLUMNS = {name: kind for name, kind in SCALARS.items() if kind != "BINARY"}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
FIELDS = [
    *(literal.strip('"') for literal in LITERALS),
    *('"quoted"', '"a,b"', '"a""b"', '""', '" "', '" a"', '"a" ', ' "a"', '"a"b', 'a"b', '"', '"a', 'a"'),
    *("", " ", "a b", " a", "a ", "\\", "a\\,b", '"a\\"b"', "#a", "TRUE", "False", "t", "1d", "1f", "007", "+5", "Inf"),
    *("nan", "null", "NULL", "é", '"é"', "\ta", "a\nb", '"a\nb"', "a\r", "-", "1,2", "\x00", "1_000", "0x1F", "1e5"),
]  # fmt: skip
LINES = [
    b"", b" ", b",", b"\n", b"a", b'"a"', b"1,2,3", b"," * 13, b"," * 14, b"," * 12, b"\xff" + b"," * 13,
    b"a\n" + b"," * 13, b"," * 13 + b"\n", b"," * 13 + b"\r\n",
    b'"x",true,1,2,3,4,5,6,7,8,9,2026-01-01,2026-01-01T00:00:00Z,2026-01-01T00:00:00', None,
]  # fmt: skip


def lines_with(field: str) -> list[bytes]:
    """The field in each column, and nothing in the others."""
    count = len(COLUMNS)
    return [("," * index + field + "," * (count - 1 - index)).encode() for index in range(count)]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_every_field_for_every_type(spark, zone):
    lines = [line for field in FIELDS for line in lines_with(field)] + LINES
    decided, wrong = differences(spark, lines, SCHEMA, zone, "csv")
    assert wrong == []
    assert decided > len(lines) / 10


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
ANY = st.one_of(
    TEXT,
    TEXT.map(lambda text: '"' + text.replace('"', '""') + '"'),
    st.integers(-(10**10), 10**10).map(str),
    st.floats().map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=2).map(str),
    st.datetimes().map(str),
    st.datetimes().map(lambda at: at.isoformat() + "Z"),
    st.dates().map(str),
    st.sampled_from(["", "true", "false", "a", "1", "-1.5"]),
)
LINE = st.lists(ANY, min_size=3, max_size=5).map(lambda fields: ",".join(fields).encode())


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(
    lines=st.lists(LINE, min_size=30, max_size=60),
    schema=st.permutations(list(COLUMNS.items())),
    zone=st.sampled_from(["UTC", "+05:30", "Europe/Berlin"]),
)
def test_generated_lines(spark, lines, schema, zone):
    chosen = ", ".join(f"{name} {kind}" for name, kind in schema[:4])
    _, wrong = differences(spark, lines, chosen, zone, "csv")
    assert wrong == []
