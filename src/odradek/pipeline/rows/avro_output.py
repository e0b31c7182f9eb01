"""Rows to Avro: a schema made of columns, columns that fit a given schema, and the encoder that Spark's workers run.

A schema made of columns has a union with null for every column that may be null. Names must be those that Avro allows.
"""

import io
import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StringType, StructField, StructType

from odradek.spark.typed.avro import AvroError, AvroSchema

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PLAIN = {
    "boolean": "boolean",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}
WIDER = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
}


def schema_of(columns: StructType, name: str) -> str:
    return json.dumps(_record(columns, name))


def _record(columns: StructType, name: str) -> dict[str, Any]:
    fields = []
    for field in columns.fields:
        if not NAME.fullmatch(field.name):
            raise AvroError(f"'{field.name}' is not a name in Avro: use letters, digits and '_'")
        kind = _avro_type(field.dataType, f"{name}_{field.name}")
        if field.nullable:
            fields.append({"name": field.name, "type": ["null", kind], "default": None})
        else:
            fields.append({"name": field.name, "type": kind})
    return {"type": "record", "name": name, "fields": fields}


def _avro_type(kind: DataType, name: str) -> Any:
    if isinstance(kind, StructType):
        return _record(kind, name)
    if isinstance(kind, ArrayType):
        return {"type": "array", "items": _inner(kind.elementType, kind.containsNull, name)}
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return {"type": "map", "values": _inner(kind.valueType, kind.valueContainsNull, name)}
    if isinstance(kind, DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if kind.simpleString() not in PLAIN:
        raise AvroError(
            f"'{name.rpartition('_')[2]}' is {kind.simpleString()}, which Avro does not have: cast it"
        )
    return PLAIN[kind.simpleString()]


def _inner(kind: DataType, has_nulls: bool, name: str) -> Any:
    found = _avro_type(kind, name)
    return ["null", found] if has_nulls else found


def fitted(rows: DataFrame, text: str, refusal: str = "") -> list[Column]:
    """The columns that a schema wants, as their types. `AvroError` if the rows do not fit it. `refusal` is the
    error of a null where the schema has no null."""
    wanted = StructType.fromDDL(AvroSchema(text).ddl)
    defaults = {one["name"] for one in json.loads(text)["fields"] if "default" in one}
    assert isinstance(wanted, StructType)
    unknown = [name for name in rows.columns if name not in wanted.fieldNames()]
    if unknown:
        raise AvroError(f"the schema has no field '{unknown[0]}'; it has {', '.join(wanted.fieldNames())}")
    found = []
    for field in wanted.fields:
        if field.name in rows.columns:
            found.append(_fitted_column(rows.schema[field.name], field, refusal))
        elif field.name not in defaults:
            raise AvroError(f"the schema needs the field '{field.name}', and the rows have no such column")
    return found


def _fitted_column(have: StructField, want: StructField, refusal: str) -> Column:
    found, wanted = have.dataType.simpleString(), want.dataType.simpleString()
    if found != wanted and wanted not in WIDER.get(found, ()):
        raise AvroError(f"the column '{have.name}' is {found}, and the schema's field {wanted}: cast it")
    column = F.col(f"`{have.name}`")
    if not want.nullable and refusal:
        failed = F.raise_error(F.lit(f"{refusal}: '{have.name}' is null")).cast(have.dataType)
        column = F.when(column.isNull(), failed).otherwise(column)
    return column.cast(want.dataType).alias(have.name) if found != wanted else column.alias(have.name)


class Unencodable(Exception):
    """A row that the schema does not take."""


def encoded(columns: list[Column], text: str, header: bytes, refusal: str, deletes: Column | None) -> Column:
    """One binary value for each row: the header, and the record by the schema. `refusal` begins the error of a row that
    the schema does not take. Rows that meet `deletes` have no value, so the schema need not take them."""

    def encode(rows: pa.Array) -> pa.Array:
        from fastavro import schemaless_writer

        schema, values = _parsed(text), list[bytes | None]()
        is_whole = _whole_by(text)
        for row in rows.to_pylist(maps_as_pydicts="strict"):
            if row is None:
                values.append(None)
                continue
            if is_whole is not None and not is_whole(row):
                raise Unencodable(f"{refusal}: a boolean in it is null, where the schema has no null")
            out = io.BytesIO()
            out.write(header)
            try:
                schemaless_writer(out, schema, row)
            except Exception as error:  # of many kinds
                raise Unencodable(f"{refusal}: {error}") from None
            values.append(out.getvalue())
        return pa.array(values, pa.binary())

    row = F.struct(*columns) if deletes is None else F.when(~deletes, F.struct(*columns))
    return arrow_udf(encode, "binary")(row)  # type: ignore[call-overload, no-any-return]


@cache
def _parsed(text: str) -> Any:
    from fastavro import parse_schema

    return parse_schema(json.loads(text))


Check = Callable[[Any], bool]


@cache
def _whole_by(text: str) -> Check | None:
    return whole(json.loads(text))


def whole(kind: Any) -> Check | None:
    """A check that no boolean is null where the schema wants one, for which fastavro would write false; None if no
    value can fail it. What else is null in the wrong place fastavro refuses by itself, and so are these checks true."""
    if isinstance(kind, list):
        inner = [check for one in kind if one != "null" and (check := whole(one)) is not None]
        return _or_null(inner[0]) if inner else None
    name = kind["type"] if isinstance(kind, dict) else kind
    if name == "boolean":
        return lambda value: value is not None
    if name == "record":
        return _whole_record(kind)
    if name in ("array", "map"):
        each = whole(kind["items" if name == "array" else "values"])
        return None if each is None else _all(each)
    return whole(name) if isinstance(name, (dict, list)) else None


def _or_null(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _all(check: Check) -> Check:
    def checked(values: Any) -> bool:
        return values is None or all(map(check, values.values() if isinstance(values, dict) else values))

    return checked


def _whole_record(kind: Any) -> Check | None:
    checks = [(one["name"], check) for one in kind["fields"] if (check := whole(one["type"])) is not None]
    if not checks:
        return None
    return lambda row: row is None or all(name not in row or check(row[name]) for name, check in checks)
