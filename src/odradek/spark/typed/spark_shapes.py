"""Spark's types as the kernels know them. Only this module of the decoders needs PySpark."""

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from odradek.spark.typed import program as P
from odradek.spark.typed.program import Field, Program, Shape, compile_shape

KINDS: dict[type[DataType], int] = {
    BooleanType: P.BOOLEAN,
    DoubleType: P.DOUBLE,
    FloatType: P.FLOAT,
    DateType: P.DATE,
    TimestampType: P.TIMESTAMP,
    TimestampNTZType: P.LOCAL_TIMESTAMP,
}
WHOLE_BITS: dict[type[DataType], int] = {ByteType: 7, ShortType: 15, IntegerType: 31, LongType: 63}


def compile_schema(schema: StructType) -> Program:
    return compile_shape(shape_of(schema))


def shape_of(kind: DataType) -> Shape:
    if isinstance(kind, StructType):
        if len(set(kind.names)) < len(kind.fields):
            return Shape(P.OTHER)  # which of two fields of one name gets the value is Spark's to say
        fields = (Field(one.name, not one.nullable, shape_of(one.dataType)) for one in kind.fields)
        return Shape(P.STRUCT, below=tuple(fields))
    if isinstance(kind, ArrayType):
        return Shape(P.ARRAY, below=(Field("element", False, shape_of(kind.elementType)),))
    if isinstance(kind, MapType):
        if type(kind.keyType) is not StringType:
            return Shape(P.OTHER)
        entry = (Field("key", False, Shape(P.STRING)), Field("value", False, shape_of(kind.valueType)))
        return Shape(P.MAP, below=entry)
    return _scalar(kind)


def _scalar(kind: DataType) -> Shape:
    if type(kind) is StringType:
        return Shape(P.STRING)
    if type(kind) in WHOLE_BITS:
        limit = 1 << WHOLE_BITS[type(kind)]
        return Shape(P.WHOLE, -limit, limit - 1)
    if isinstance(kind, DecimalType):
        return Shape(P.DECIMAL, kind.precision, kind.scale)
    return Shape(KINDS.get(type(kind), P.OTHER))
