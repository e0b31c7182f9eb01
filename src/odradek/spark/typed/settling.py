"""The second half of typed decoding: values that the source left undecided are decoded by Spark's own functions.

`load` is all that a program needs. The frame is what `from_json(CAST(value AS STRING), schema)` would have made of
every value, because for values in doubt that is what it is.
"""

from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from odradek.spark.options import UNDECIDED
from odradek.spark.schema import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader
    from pyspark.sql.types import DataType

Reader = TypeVar("Reader", bound=Any)

LEGACY_TIMES = "spark.sql.legacy.timeParserPolicy"
TIME_ZONE = "spark.sql.session.timeZone"


def load(reader: "DataFrameReader | DataStreamReader", form: str, schema: str = "") -> "DataFrame":
    """Load `format("odradek")` with the column `value` decoded: json by a schema, or text."""
    spark = reader._spark
    if is_faithful(spark):
        return settled(with_values(reader, spark, form, schema).load(), form)
    plain = reader.load()
    return plain.withColumn("value", by_spark(form, F.col("value").cast("string"), schema))


def is_faithful(spark: "SparkSession") -> bool:
    """False if the session reads dates and times by the rules of Spark 2, which the source does not know."""
    return str(spark.conf.get(LEGACY_TIMES)).upper() != "LEGACY"


def with_values(reader: Reader, spark: "SparkSession", form: str, schema: str) -> Reader:
    """The reader with the options of typed values, the session's time zone among them."""
    options = {"valueFormat": form, "timeZone": str(spark.conf.get(TIME_ZONE))}
    reader.options(**options, **({"valueSchema": schema} if schema else {}))
    return reader


def settled(frame: "DataFrame", form: str) -> "DataFrame":
    """The frame of a typed source with every value decoded, and without the undecided ones."""
    decoded = by_spark(form, F.col(UNDECIDED).cast("string"), frame.schema["value"].dataType)
    value = F.when(F.col(UNDECIDED).isNull(), F.col("value")).otherwise(decoded)
    return frame.withColumn("value", value).drop(UNDECIDED)


def by_spark(form: str, text: Column, schema: "DataType | str") -> Column:
    """The value that Spark finds; for Avro none, because what the source could not decode is not Avro."""
    if form == "avro":
        return F.lit(None)
    if form == "csv":
        return F.from_csv(text, schema if isinstance(schema, str) else columns_of(schema))
    return text if form == "text" else F.from_json(text, schema)  # type: ignore[arg-type]


def columns_of(schema: "DataType") -> str:
    """The fields of a struct as DDL; a line of CSV has no structs within."""
    assert isinstance(schema, StructType)
    return ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in schema.fields)
