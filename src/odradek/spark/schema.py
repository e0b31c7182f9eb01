"""The columns of the source, which are those of Spark's own Kafka source, and the columns of the sink."""

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

from odradek.spark.options import SinkOptions

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


class InvalidColumn(ValueError):
    """The message names the column and what it should be."""


def source_schema(include_headers: bool) -> StructType:
    columns = [*SOURCE_COLUMNS, ("headers", HEADERS)] if include_headers else SOURCE_COLUMNS
    return StructType([StructField(name, kind) for name, kind in columns])


def check_source_schema(schema: StructType, include_headers: bool) -> None:
    if schema != source_schema(include_headers):
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
    """Whether nulls are allowed makes no difference."""
    return one.simpleString() == other.simpleString()
