"""Spark's types that are no arrays, maps or structs, and that tables elsewhere have, too."""

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

WHOLE = (ByteType, ShortType, IntegerType, LongType)
PLAIN = (
    *WHOLE,
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    StringType,
    TimestampNTZType,
    TimestampType,
)
