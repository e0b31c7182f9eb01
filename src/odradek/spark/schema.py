"""The columns of the source, which are those of Spark's own Kafka source, and the columns of the sink.

With `valueFormat`, `value` is a struct, and one column more has the bytes of values that are left to Spark to
decode. Its schema is text, because only Spark's JVM can parse DDL.
"""

import json

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.spark.options import UNDECIDED, InvalidColumn, InvalidOption, SinkOptions, ValueOptions

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

SOURCE_COLUMNS: list[tuple[str, DataType]] = [
    ("key", BinaryType()),
    ("value", BinaryType()),
    ("topic", StringType()),
    ("partition", IntegerType()),
    ("offset", LongType()),
    ("timestamp", TimestampType()),
    ("timestampType", IntegerType()),
]

SINK_COLUMNS: dict[str, list[DataType]] = {
    "key": [BinaryType(), StringType()],
    "value": [BinaryType(), StringType()],
    "topic": [StringType()],
    "partition": [IntegerType()],
    "headers": [HEADERS],
    "timestamp": [TimestampType(), DoubleType()],
}


def source_schema(include_headers: bool) -> StructType:
    columns = [*SOURCE_COLUMNS, ("headers", HEADERS)] if include_headers else SOURCE_COLUMNS
    return StructType([StructField(name, kind) for name, kind in columns])


def typed_source_schema(include_headers: bool, values: ValueOptions) -> str:
    """DDL. Fields that are NOT NULL in the schema of the values stay so within the struct, which may itself be null."""
    kinds = {field.name: field.dataType.simpleString() for field in source_schema(include_headers)}
    kinds["value"] = value_type(values)
    return ", ".join(f"`{name}` {kind}" for name, kind in (kinds | {UNDECIDED: "binary"}).items())


def value_type(values: ValueOptions) -> str:
    """The type of the column `value`, as DDL."""
    if values.form == "text":
        return "STRING"
    if values.form == "avro":
        return f"STRUCT<{_avro_columns(values.schema)}>"
    if values.schema.startswith("{"):
        return _ddl(StructType.fromJson(json.loads(values.schema)))
    return f"STRUCT<{values.schema}>"


def _avro_columns(text: str) -> str:
    from odradek.spark.typed.avro import AvroError, AvroSchema

    try:
        return AvroSchema(text).ddl
    except AvroError as error:
        raise InvalidOption("valueSchema", str(error)) from None


def _ddl(kind: DataType) -> str:
    """Like `simpleString`, but names are quoted, and fields that are required say so."""
    if isinstance(kind, StructType):
        fields = (
            f"{quoted(field.name)}: {_ddl(field.dataType)}{'' if field.nullable else ' NOT NULL'}"
            for field in kind.fields
        )
        return f"STRUCT<{', '.join(fields)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{_ddl(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{_ddl(kind.keyType)}, {_ddl(kind.valueType)}>"
    return kind.simpleString()


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def check_source_schema(schema: StructType, include_headers: bool, values: ValueOptions) -> None:
    if values.is_typed:
        names = [*source_schema(include_headers).fieldNames(), UNDECIDED]
        fits = schema.fieldNames() == names and not isinstance(schema["value"].dataType, BinaryType)
    else:
        fits = schema == source_schema(include_headers)
    if not fits:
        raise InvalidColumn(
            "the columns of this source are fixed: leave out .schema(…) and select the columns you need"
        )


def check_sink_schema(schema: StructType, options: SinkOptions) -> None:
    names = schema.fieldNames()
    if "value" not in names:
        raise InvalidColumn(f"there must be a column 'value'; the columns are {', '.join(names)}")
    if options.topic is None and "topic" not in names:
        raise InvalidColumn("set the option 'topic', or add a column 'topic'")
    for field in schema.fields:
        allowed = SINK_COLUMNS.get(field.name)
        if allowed is None or (field.name == "timestamp" and not options.include_timestamp):
            continue
        if not any(_same(field.dataType, kind) for kind in allowed):
            expected = " or ".join(kind.simpleString() for kind in allowed)
            raise InvalidColumn(
                f"column '{field.name}' is {field.dataType.simpleString()}, it must be {expected}: {_remedy(field)}"
            )


def _remedy(field: StructField) -> str:
    name = field.name
    if name == "timestamp":
        return (
            "make it one, for example with to_timestamp(timestamp) (a double is seconds since 1970), or set the "
            "option includeTimestamp to false to use the time of writing"
        )
    if name in ("key", "value") and isinstance(field.dataType, StructType | ArrayType | MapType):
        return f"make it text, for example with to_json({name}) AS {name}"
    return f"cast it, for example with CAST({name} AS {SINK_COLUMNS[name][-1].simpleString().upper()})"


def _same(one: DataType, other: DataType) -> bool:
    """Compares two types; whether they allow nulls makes no difference."""
    return one.simpleString() == other.simpleString()
