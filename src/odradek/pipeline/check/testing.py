"""A pipeline's own tests: rows in, rows expected, without a broker.

    [[tests]]
    name = "returns are subtracted"
    given.orders = [{ id = 1, amount = 5.0 }, '{"id": 2, "amount": 7.5}', "not JSON"]
    expect.revenue = [{ total = 12.5 }]
    expect.dead_letters = [{ stage = "decode", name = "orders" }]

A given row that is a table has the source's columns; one that is a string is a record's value, and is decoded.
Expected rows of a stage, a sink or the dead letters are compared in any order, by the columns they name. The stages
run as a batch, so windows are complete and nothing is ever late. Tests may also be in a file next to the
pipeline's, NAME.tests.toml.
"""

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from odradek.pipeline.check.weaving import Weaver, rejected_in_batch
from odradek.pipeline.file import document as documents
from odradek.pipeline.file.definition import Pipeline, Source, TestCase
from odradek.pipeline.file.errors import PipelineError, PipelineErrors
from odradek.pipeline.file.reading import read_tests
from odradek.pipeline.kinds.registry import sink_kind, source_kind
from odradek.pipeline.kinds.sink import without_metadata
from odradek.pipeline.rows.transforms import plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEAD_LETTERS = "dead_letters"
METADATA_TYPES = {
    "_key": "_key STRING",
    "_topic": "_topic STRING",
    "_partition": "_partition INT",
    "_offset": "_offset BIGINT",
    "_timestamp": "_timestamp TIMESTAMP",
    "_headers": "_headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "_file": "_file STRING",
}


@dataclass
class Outcome:
    case: TestCase
    problems: list[str] = field(default_factory=list)


def all_tests(pipeline: Pipeline) -> list[tuple[documents.Document, TestCase]]:
    """Return the tests in the pipeline's file, and those next to it."""
    found = [(pipeline.document, case) for case in pipeline.tests]
    path = pipeline.document.path.with_suffix(".tests.toml")
    if path.exists():
        document = documents.read(path)
        problems: list[PipelineError] = []
        found += [
            (document, case) for case in read_tests(document, document.values.get("tests", []), problems)
        ]
        problems += [
            document.error((name,), "only [[tests]] belong in this file")
            for name in document.values
            if name != "tests"
        ]
        if problems:
            raise PipelineErrors(problems)
    return found


def run_test(
    spark: "SparkSession", pipeline: Pipeline, document: documents.Document, case: TestCase
) -> Outcome:
    session = spark.newSession()
    reader = GivenReader(session, pipeline, document, case)
    reader.check_names()
    woven = Weaver(session, pipeline, reader).weave()
    outcome = Outcome(case)
    for name, expected in case.expect.items():
        key = (*case.key, "expect", name)
        if not isinstance(expected, list) or not all(isinstance(row, dict) for row in expected):
            raise document.error(key, "this must be a list of rows, [{…}]")
        try:
            if name == DEAD_LETTERS:
                rows = [as_plain(row) for row in rejected_in_batch(pipeline, woven).collect()]
            elif name in woven.rows:
                rows = [as_plain(row) for row in woven.rows[name].collect()]
            elif name in pipeline.sinks:
                rows = _sink_rows(pipeline, name, woven.rows[pipeline.sinks[name].input])
            else:
                known = ", ".join([*woven.rows, *pipeline.sinks, DEAD_LETTERS])
                raise document.error(key, f"there is no stage or sink '{name}'; there are {known}")
        except PySparkException as error:
            outcome.problems.append(f"{name} failed: {plain(error)}")
            continue
        outcome.problems += [f"{name}: {problem}" for problem in compare(expected, rows)]
    return outcome


def _sink_rows(pipeline: Pipeline, name: str, frame: DataFrame) -> list[dict[str, Any]]:
    kind = sink_kind(pipeline, pipeline.sinks[name])
    rows = without_metadata(kind.plan(frame)).collect()
    return [kind.readable(as_plain(row)) for row in rows]


@dataclass
class GivenReader:
    spark: "SparkSession"
    pipeline: Pipeline
    document: documents.Document
    case: TestCase

    def check_names(self) -> None:
        for name in self.case.given:
            if name not in self.pipeline.sources:
                known = ", ".join(self.pipeline.sources)
                problem = f"there is no source '{name}'; there are {known}"
                raise self.document.error((*self.case.key, "given", name), problem)

    def _given(self, source: Source) -> list[Any]:
        rows = self.case.given.get(source.name, [])
        if not isinstance(rows, list) or not all(isinstance(row, (dict, str)) for row in rows):
            key = (*self.case.key, "given", source.name)
            raise self.document.error(key, 'this must be a list of rows, [{…}], or of values, ["…"]')
        return rows

    def records(self, source: Source) -> DataFrame:
        values = [row for row in self._given(source) if isinstance(row, str)]
        raw = [self._bytes(source, value) for value in values]
        return source_kind(self.pipeline, source).given(self.spark, raw)

    def _bytes(self, source: Source, value: str) -> bytes:
        """A string is the value's text; of Avro, which is not text, its base64."""
        return base64.b64decode(value) if source.format == "avro" else value.encode()

    def rows(self, source: Source, schema: StructType) -> DataFrame | None:
        given = self._given(source)
        tables = [row for row in given if isinstance(row, dict)]
        if source.is_static and not schema.fields:
            return self._static_rows(source, tables)
        if not tables and source_kind(self.pipeline, source).decodes:
            return None
        return self._table_rows(source, schema, tables)

    def _table_rows(self, source: Source, schema: StructType, tables: list[dict[str, Any]]) -> DataFrame:
        metadata = source_kind(self.pipeline, source).metadata
        self._check_columns(source, {*schema.fieldNames(), *metadata.values()}, tables)
        added = StructType.fromDDL(
            ", ".join(METADATA_TYPES[column] for column in metadata.values()) or "c INT"
        )
        assert isinstance(added, StructType)
        whole = StructType([*schema.fields, *(added.fields if metadata else [])])
        frame = self._from_json(source, tables, whole)
        if "_key" in metadata.values():
            frame = frame.withColumn("_key", F.col("_key").cast("binary"))
        return frame

    def _check_columns(self, source: Source, known: set[str], tables: list[dict[str, Any]]) -> None:
        for number, row in enumerate(tables):
            for name in row:
                if name not in known:
                    key = (*self.case.key, "given", source.name, number)
                    problem = f"the source has no column '{name}'; it has {', '.join(sorted(known))}"
                    raise self.document.error(key, problem)

    def _from_json(self, source: Source, tables: list[dict[str, Any]], schema: StructType) -> DataFrame:
        texts = [(json.dumps(row, default=_json_default),) for row in tables]
        frame = self.spark.createDataFrame(texts, "text string")
        row = F.from_json("text", schema, {"mode": "FAILFAST"})
        return frame.select(row.alias("row")).select("row.*")

    def _static_rows(self, source: Source, tables: list[dict[str, Any]]) -> DataFrame:
        if not tables:
            key = (*self.case.key, "given")
            problem = f"give rows for the table '{source.name}': given.{source.name} = [{{…}}]"
            raise self.document.error(key, problem)
        text = json.dumps(tables, default=_json_default)
        ddl = self.spark.range(1).select(F.schema_of_json(F.lit(text))).first()[0]  # type: ignore[index]
        return self.spark.range(1).select(F.inline(F.from_json(F.lit(text), ddl)))


def _json_default(value: Any) -> str:
    return value.isoformat() if isinstance(value, (date, datetime)) else str(value)


# Comparing


def as_plain(row: Row) -> dict[str, Any]:
    return {name: _plain_value(value) for name, value in row.asDict(recursive=True).items()}


def _plain_value(value: Any) -> Any:
    match value:
        case datetime():
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            return aware.astimezone(UTC).isoformat()
        case date():
            return value.isoformat()
        case bytes() | bytearray():
            try:
                return bytes(value).decode()
            except UnicodeDecodeError:
                return {"base64": base64.b64encode(bytes(value)).decode()}
        case Decimal():
            return float(value)
        case dict():
            return {str(name): _plain_value(inner) for name, inner in value.items()}
        case list():
            return [_plain_value(inner) for inner in value]
    return value


def compare(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[str]:
    """Missing rows and unexpected rows, in words."""
    left = list(found)
    missing = []
    for row in expected:
        at = next((at for at, other in enumerate(left) if _fits(row, other)), None)
        if at is None:
            missing.append(row)
        else:
            left.pop(at)
    named = {name for row in expected for name in row}
    extra = [{name: value for name, value in row.items() if not named or name in named} for row in left]
    return [f"missing {_shown(row)}" for row in missing] + [f"not expected {_shown(row)}" for row in extra]


def _shown(row: Mapping[str, Any]) -> str:
    return json.dumps(row, default=_json_default, ensure_ascii=False)


def _fits(expected: Any, found: Any) -> bool:
    if isinstance(expected, dict) and isinstance(found, dict):
        return all(name in found and _fits(value, found[name]) for name, value in expected.items())
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(_fits, expected, found))
    if isinstance(expected, (datetime, date)):
        expected = _plain_value(expected)
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, (int, float)) and isinstance(found, (int, float)):
        return math.isclose(expected, found, rel_tol=1e-9, abs_tol=1e-12)
    if expected == found:
        return True
    return isinstance(expected, str) and isinstance(found, str) and _same_time(expected, found)


def _same_time(one: str, other: str) -> bool:
    try:
        first, second = (datetime.fromisoformat(text) for text in (one, other))
    except ValueError:
        return False
    utc = [time if time.tzinfo else time.replace(tzinfo=UTC) for time in (first, second)]
    return utc[0] == utc[1]
