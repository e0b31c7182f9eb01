"""A source that decodes where it reads gives the rows, the rejects and the reasons of one that does not."""

import pytest
from pyspark.sql import functions as F

from odradek.pipeline.check.weaving import BatchReader, StreamReader, Weaver
from odradek.pipeline.file.reading import load
from odradek.pipeline.kinds.dead_letters import decode_letters
from odradek.pipeline.kinds.registry import source_kind
from odradek.pipeline.rows.decoding import decode, rows_of
from odradek.pipeline.session import new_session
from odradek.spark.typed.settling import with_values
from tests.pipeline.lab import Lab
from tests.spark.typed_traps import LITERALS, STRUCTURES

SCHEMA = (
    "v_int INT, v_string STRING, v_double DOUBLE, v_timestamp TIMESTAMP, v_decimal DECIMAL(10,2), "
    "inner STRUCT<x: INT NOT NULL>, rows ARRAY<STRUCT<q: STRING>>, mv_int MAP<STRING, INT>"
)
NAMES = ("v_int", "v_string", "v_double", "v_timestamp", "v_decimal")
VALUES = [f'{{"{name}":{value}}}'.encode() for name in NAMES for value in LITERALS]
COLUMNS = "id INT NOT NULL, name STRING, at TIMESTAMP"
LINES = [f"{value},x,2026-01-01T00:00:00Z".encode() for value in (1, "", "x", "1.5", " 2", '"3"', "-4")]
LINES += [f"1,{value},".encode() for value in ("a", '"a,b"', '"a""b"', "a b", " a", '""', "", "é", "\\")]
LINES += [
    b"1,a",
    b"1,a,,",
    b"",
    b" ",
    b"\n",
    b"1,a,\n",
    b"1,a,\r\n",
    b"1,a\nb,",
    b'1,"a\nb",',
    b"1,\xff,",
    b"1,a,x",
]
LINES += [f"{number},n{number},2026-01-01 00:00:00.5".encode() for number in range(10)]

FILE = """
[pipeline]
name = "typed"
[kafka]
"bootstrap.servers" = "{bootstrap}"
[sources.a]
topic = "{topic}"
format = "{form}"
tombstones = "{tombstones}"
{schema}
[sinks.out]
from = "a"
console = true
[dead_letters]
path = "letters"
"""


def found(decoded, pipeline, source, schema) -> tuple[list, list]:
    rows = rows_of(decoded, schema, {"offset": "_offset"})
    as_text = rows.select("_offset", F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("row"))
    letters = decode_letters(pipeline, source, decoded, schema)
    return sorted(as_text.collect()), sorted(
        (row.offset, row.reason, bytes(row.value))
        for row in letters.select("offset", "reason", "value").collect()
    )


@pytest.mark.parametrize("tombstones", ["drop", "keep"])
@pytest.mark.parametrize("form", ["json", "text", "csv"])
def test_the_same_rows_rejects_and_reasons(spark, lab: Lab, write, form, tombstones):
    topic = lab.topic(1)
    values = [*LINES, None] if form == "csv" else STRUCTURES
    lab.fill(topic, [*VALUES, *values] if tombstones == "drop" and form == "json" else values, 1)
    declared = {"json": f"schema = '''{SCHEMA}'''", "csv": f"schema = '''{COLUMNS}'''", "text": ""}[form]
    path = write(
        FILE.format(bootstrap=lab.bootstrap, topic=topic, form=form, schema=declared, tombstones=tombstones)
    )
    pipeline = load(path)
    source = pipeline.sources["a"]
    kind = source_kind(pipeline, source)
    schema = kind.schema()
    plain = kind.batch(spark)
    reader = spark.read.format("odradek").options(**kind._options(), includeHeaders="true")
    typed = with_values(reader, spark, form, "" if form == "text" else schema.json()).load()
    assert typed.columns[-1] == "undecided" and typed.where("undecided IS NULL").count() >= 15
    expected = found(decode(plain, pipeline, source, schema), pipeline, source, schema)
    assert found(decode(typed, pipeline, source, schema), pipeline, source, schema) == expected
    assert len(expected[0]) >= 15 and len(expected[1]) > 3


def test_without_dead_letters_no_row_of_a_stream_passes_through_python(spark, lab: Lab, write):
    """The reason for a rejected record is found once the run has ended."""
    declared = f"schema = '''{SCHEMA}'''"
    text = FILE.format(bootstrap=lab.bootstrap, topic="t", form="json", schema=declared, tombstones="drop")
    pipeline = load(write(text.split("[dead_letters]")[0]))
    session = new_session(spark)

    def plan(reader) -> str:
        rows = Weaver(session, pipeline, reader).weave().rows["a"]
        return str(rows._jdf.queryExecution().analyzed().toString())

    assert "explain(" not in plan(StreamReader(session, pipeline, "group"))
    assert "explain(" in plan(BatchReader(session, pipeline)), "the test would notice"


def test_streams_decode_where_they_read(spark, lab: Lab, write):
    topic = lab.topic(1)
    declared = f"schema = '''{SCHEMA}'''"
    text = FILE.format(bootstrap=lab.bootstrap, topic=topic, form="json", schema=declared, tombstones="drop")
    pipeline = load(write(text))
    kind = source_kind(pipeline, pipeline.sources["a"])
    assert "undecided" in kind.stream(spark, "group", headers=False, named=False).columns
    spark.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    try:
        assert "undecided" not in kind.stream(spark, "group", headers=False, named=False).columns
    finally:
        spark.conf.unset("spark.sql.legacy.timeParserPolicy")
