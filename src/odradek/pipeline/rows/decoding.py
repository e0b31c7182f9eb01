"""Bytes to rows: a source's records decoded by its format and schema, and the bad ones among them.

A decoded frame has the original record, its row (`ROW`, a struct) and whether it was rejected
(`REJECTED`). Only tombstones are dropped here: the reader takes the good rows or the rejected ones.

`from_json` alone lets empty strings, white space and trailing garbage pass as rows of nulls, and takes the
first of two values. So the value is put into an object of ours, `{"…": VALUE, "…": 1}`: text that is not
exactly one JSON value then breaks the object, or the second key is not found. Fields that do not fit their type are
found by Spark's own corrupt-record column; missing fields that are NOT NULL in the schema, by us.

A null value is a tombstone, not an error.

Topics are decoded where they are read (`odradek.spark.typed`), and only values that are left undecided there come here:
for the others `value` is null. All records that are rejected are among these, so good ones cost nothing here.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from functools import cache

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StringType, StructField, StructType

from odradek.pipeline.file.definition import Pipeline, Source
from odradek.pipeline.file.errors import PipelineError
from odradek.pipeline.rows.reasons import GENERIC, reason_for
from odradek.spark.options import UNDECIDED
from odradek.spark.typed.avro import AvroError, AvroSchema, Decoder, fetch_schema

ROW = "__row"
REJECTED = "__rejected"
TYPED = "__typed"
CORRUPT = "__odradek_corrupt"
VALUE_KEY = "__odradek_value"
END_KEY = "__odradek_end"
JSON_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "allowSingleQuotes": "false"}
CSV_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
EXPLAINED_BYTES = 50_000  # of a value in an error
REFUSED = re.compile(r"source '([^']+)': .*?: <([A-Za-z0-9+/=]*)>")

METADATA_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers", "_file")


def schema_text(pipeline: Pipeline, source: Source) -> str:
    """The schema as the user wrote it, in the file or next to it, or from the registry."""
    if source.schema:
        return source.schema
    if source.schema_file:
        try:
            return (pipeline.directory / source.schema_file).read_text()
        except OSError as error:
            problem = f"{source.schema_file} cannot be read: {error.strerror or error}"
            raise pipeline.error((*source.key, "schema_file"), problem) from None
    try:
        return fetch_schema(source.registry, f"subjects/{source.subject}/versions/latest")
    except (OSError, AvroError, KeyError, ValueError) as error:
        problem = f"the schema of {source.subject} could not be fetched: {error}"
        raise pipeline.document.unreachable((*source.key, "registry"), problem) from None


def row_schema(pipeline: Pipeline, source: Source) -> StructType:
    """Columns of the source's rows. Spark parses the DDL, so there must be a session."""
    if source.format == "text":
        return StructType().add("value", "string")
    if source.format == "raw":
        return StructType().add("value", "binary")
    text = schema_text(pipeline, source)
    where = "schema" if source.schema else "schema_file"
    try:
        if source.format == "avro":
            schema = StructType.fromDDL(AvroSchema(text).ddl)
        elif text.lstrip().startswith("{"):
            schema = StructType.fromJson(json.loads(text))
        else:
            schema = StructType.fromDDL(text)
        assert isinstance(schema, StructType), "it has no columns"
    except PipelineError:
        raise
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise pipeline.error((*source.key, where), f"this is not a schema: {reason}") from None
    for name in schema.fieldNames():
        if name in METADATA_COLUMNS:
            problem = f"the name '{name}' is reserved: it says where a row came from"
            raise pipeline.error((*source.key, where), problem)
    return schema


def decode(records: DataFrame, pipeline: Pipeline, source: Source, schema: StructType) -> DataFrame:
    """Records with the columns `ROW` and `REJECTED`."""
    if UNDECIDED in records.columns:
        return _decode_rest(records, pipeline, source, schema)
    if source.tombstones == "drop":
        records = records.where(F.col("value").isNotNull())
    return _decode_values(records, pipeline, source, schema)


def _decode_rest(records: DataFrame, pipeline: Pipeline, source: Source, schema: StructType) -> DataFrame:
    """The same for records of which most have been decoded already."""
    records = records.withColumns({TYPED: F.col("value"), "value": F.col(UNDECIDED)}).drop(UNDECIDED)
    is_left = F.col("value").isNotNull()
    typed = F.struct(F.col(TYPED).alias("value")) if source.format == "text" else F.col(TYPED)
    if source.tombstones == "drop":
        records = records.where(is_left | F.col(TYPED).isNotNull())
    if source.format == "avro":  # the source has the last word: what it left is rejected
        return records.withColumn(ROW, F.col(TYPED)).withColumn(REJECTED, is_left).drop(TYPED)
    decoded = _decode_values(records, pipeline, source, schema)
    return decoded.withColumn(ROW, F.when(is_left, F.col(ROW)).otherwise(typed)).drop(TYPED)


def _decode_values(records: DataFrame, pipeline: Pipeline, source: Source, schema: StructType) -> DataFrame:
    value = F.col("value")
    if source.format in ("text", "raw"):
        return _decode_plain(records, source, value)
    if source.format == "avro":
        return _decode_avro(records, pipeline, source, schema)
    text = value.cast("string")
    if source.format == "json":
        wrapped = F.concat(F.lit(f'{{"{VALUE_KEY}":'), text, F.lit(f',"{END_KEY}":1}}'))
        whole = StructType().add(VALUE_KEY, _nullable(schema)).add(END_KEY, "integer").add(CORRUPT, "string")
        parsed = records.withColumn("__parsed", F.from_json(wrapped, whole, JSON_OPTIONS))
        row = F.col(f"__parsed.{VALUE_KEY}")
        broken = (
            F.col(f"__parsed.{CORRUPT}").isNotNull() | F.col(f"__parsed.{END_KEY}").isNull() | row.isNull()
        )
    else:
        line = F.regexp_replace(text, r"\r?\n$", "")
        whole = StructType([*_nullable(schema).fields, StructField(CORRUPT, StringType())])
        options = CSV_OPTIONS | {key: value for key, value in source.options.items() if key != "header"}
        parsed = records.withColumn("__parsed", F.from_csv(line, F.lit(_ddl(whole)), options))
        row = F.struct(*(F.col(f"__parsed.`{name}`") for name in schema.fieldNames()))
        outside_quotes = F.regexp_replace(line, r'"(?:[^"]|"")*"', "")
        broken = (
            F.col(f"__parsed.{CORRUPT}").isNotNull() | (F.trim(line) == "") | outside_quotes.contains("\n")
        )
    rejected = broken | ~F.is_valid_utf8(text) | _lacks_required(schema, row)
    parsed = parsed.withColumn(REJECTED, value.isNotNull() & F.coalesce(rejected, F.lit(True)))
    return parsed.withColumn(ROW, row).drop("__parsed")


def _decode_plain(records: DataFrame, source: Source, value: Column) -> DataFrame:
    if source.format == "raw":
        return records.withColumn(ROW, F.struct(value)).withColumn(REJECTED, F.lit(False))
    text = value.cast("string")
    decoded = records.withColumn(ROW, F.struct(text.alias("value")))
    return decoded.withColumn(REJECTED, value.isNotNull() & ~F.is_valid_utf8(text))


def _decode_avro(records: DataFrame, pipeline: Pipeline, source: Source, schema: StructType) -> DataFrame:
    decoder = avro_decoder(schema_text(pipeline, source), source, _nullable(schema))
    parsed = records.withColumn("__parsed", decoder(F.col("value")))
    row = F.col("__parsed.row")
    parsed = parsed.withColumn(REJECTED, F.col("value").isNotNull() & F.col("__parsed.rejected"))
    return parsed.withColumn(ROW, row).drop("__parsed")


def avro_decoder(text: str, source: Source, schema: StructType) -> Callable[[Column], Column]:
    result = StructType().add("row", schema).add("rejected", "boolean")
    framing, registry = source.framing, source.registry

    def decode_all(values: pa.Array) -> pa.Array:
        from pyspark.sql.pandas.types import to_arrow_type

        decoder = _cached_decoder(text, framing, registry)
        rows = []
        for value in values.to_pylist():
            row, rejected = None, False
            if value is not None:
                try:
                    row = decoder.decode(value)
                except AvroError:
                    rejected = True
            rows.append({"row": row, "rejected": rejected})
        return pa.array(rows, to_arrow_type(result, timezone="UTC"))

    return arrow_udf(decode_all, result)  # type: ignore[call-overload, no-any-return]


@cache
def _cached_decoder(text: str, framing: str, registry: str) -> Decoder:
    return Decoder(text, framing, registry)


def reason_column(pipeline: Pipeline, source: Source, schema: StructType) -> Column:
    """Why a rejected record was rejected; null for the others, though Spark asks for every row."""
    form, as_json = source.format, schema.jsonValue()
    framing, registry = source.framing, source.registry
    avro = schema_text(pipeline, source) if form == "avro" else ""

    def explain(values: pa.Array) -> pa.Array:
        decoder = _cached_decoder(avro, framing, registry) if avro else None
        return reasons_for(values, lambda value: reason_for(form, as_json, value, decoder))

    explained = arrow_udf(explain, "string")  # type: ignore[call-overload]
    return explained(F.when(F.col(REJECTED), F.col("value")))  # type: ignore[no-any-return]


def reasons_for(rejected: pa.Array, reason: Callable[[bytes], str]) -> pa.Array:
    """Good rows are null here. Usually all of a batch are, and then no object is created for any of them."""
    if rejected.null_count == len(rejected):
        return pa.nulls(len(rejected), pa.string())
    return pa.array([None if one is None else reason(one) for one in rejected.to_pylist()], pa.string())


def rows_of(decoded: DataFrame, schema: StructType, metadata: Mapping[str, str]) -> DataFrame:
    """The good rows, with the columns that say where they came from, by the record's column."""
    columns = [F.col(f"{ROW}.`{name}`").alias(name) for name in schema.fieldNames()]
    columns += [F.col(record).alias(column) for record, column in metadata.items()]
    return decoded.where(~F.col(REJECTED)).select(*columns)


def refuse_rejected(
    decoded: DataFrame, pipeline: Pipeline, source: Source, schema: StructType, place: list[Column]
) -> DataFrame:
    """Without a place for dead letters, a record that cannot be decoded ends the pipeline, and is named.

    A function that explains would cost every row of a stream a way to Python and back. So the error has the value, and
    `explain_refusal` finds the reason once the run has ended.
    """
    if decoded.isStreaming:
        reason = F.concat(F.lit("<"), F.base64(F.substring("value", 1, EXPLAINED_BYTES)), F.lit(">"))
    else:
        reason = reason_column(pipeline, source, schema)
    where = [
        F.lit(f"source '{source.name}': "),
        *place,
        F.lit(": "),
        reason,
        F.lit(". Declare [dead_letters] to set such records aside"),
    ]
    failed = F.raise_error(F.concat(*where)).cast("boolean")
    return decoded.withColumn(
        REJECTED, held_in_place(F.when(F.col(REJECTED), failed).otherwise(F.lit(False)))
    )


def explain_refusal(pipeline: Pipeline, text: str) -> str:
    """The error of `refuse_rejected` with a reason in place of the value; other errors as they are."""
    found = REFUSED.search(text)
    if found is None or found[1] not in pipeline.sources:
        return text
    source, value = pipeline.sources[found[1]], base64.b64decode(found[2])
    avro = None
    if source.format == "avro":
        avro = _cached_decoder(schema_text(pipeline, source), source.framing, source.registry)
    reason = GENERIC
    if len(value) < EXPLAINED_BYTES:
        reason = reason_for(source.format, row_schema(pipeline, source).jsonValue(), value, avro)
    return f"{text[: found.start(2) - 1]}{reason}{text[found.end(2) + 1 :]}"


def held_in_place(condition: Column) -> Column:
    """The condition, evaluated for every row that reaches it. Spark moves filters of later stages before earlier
    ones, and rows that should end the run would be gone unseen; it does not do so if it is not deterministic."""
    return condition & (F.spark_partition_id() >= 0)


def _nullable(schema: StructType) -> StructType:
    return StructType([StructField(field.name, field.dataType) for field in schema.fields])


def _ddl(schema: StructType) -> str:
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)


def _lacks_required(schema: StructType, row: Column) -> Column:
    """True if a required field is missing: at the top, or within structs that are not null."""
    lacking = F.lit(False)
    for field in schema.fields:
        found = row.getField(field.name)
        if not field.nullable:
            lacking = lacking | found.isNull()
        if isinstance(field.dataType, StructType):
            lacking = lacking | (found.isNotNull() & _lacks_required(field.dataType, found))
    return lacking
