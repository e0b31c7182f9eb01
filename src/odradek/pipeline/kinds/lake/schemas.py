"""The columns of rows, and those of a table that they go to. Spark's types are the common language.

A table's schema changes only by new columns at its end. Columns that rows lack are null. A number may become a wider
one on its way into a table; any other difference of types is refused, because a cast may lose something: the author
casts.
"""

from collections.abc import Callable

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from odradek.pipeline.kinds.plain_types import PLAIN

WIDER: dict[type, tuple[type, ...]] = {
    ByteType: (ShortType, IntegerType, LongType),
    ShortType: (IntegerType, LongType),
    IntegerType: (LongType,),
    FloatType: (DoubleType,),
}


class Misfit(Exception):
    """Rows that a table cannot take, in words."""


def check_types(rows: StructType) -> None:
    """`Misfit` if no table could have these columns."""
    seen: dict[str, str] = {}
    for field in rows.fields:
        name = field.name.lower()
        if name in seen:
            raise Misfit(f"the columns '{seen[name]}' and '{field.name}' differ only by upper and lower case")
        seen[name] = field.name
        if (bad := _unwritable(field.dataType)) is not None:
            raise Misfit(
                f"the column '{field.name}' is {bad.simpleString()}, which lake tables do not have: cast it"
            )


def _unwritable(kind: DataType) -> DataType | None:
    if isinstance(kind, StructType):
        return next((bad for one in kind.fields if (bad := _unwritable(one.dataType))), None)
    if isinstance(kind, ArrayType):
        return _unwritable(kind.elementType)
    if isinstance(kind, MapType):
        return _unwritable(kind.keyType) or _unwritable(kind.valueType)
    return None if isinstance(kind, PLAIN) else kind


def nullable(schema: StructType) -> StructType:
    """The same columns of a new table: what is required today need not be tomorrow."""
    return StructType([StructField(one.name, _loose(one.dataType)) for one in schema.fields])


def _loose(kind: DataType) -> DataType:
    """Without NOT NULL within."""
    if isinstance(kind, StructType):
        return nullable(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_loose(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(_loose(kind.keyType), _loose(kind.valueType))
    return StringType() if isinstance(kind, StringType) else kind


def widened(schema: StructType, replace: Callable[[DataType], DataType]) -> StructType:
    """The schema with each plain type replaced, at any depth."""

    def walk(kind: DataType) -> DataType:
        if isinstance(kind, StructType):
            return widened(kind, replace)
        if isinstance(kind, ArrayType):
            return ArrayType(walk(kind.elementType), kind.containsNull)
        if isinstance(kind, MapType):
            return MapType(walk(kind.keyType), walk(kind.valueType), kind.valueContainsNull)
        return replace(kind)

    return StructType([StructField(one.name, walk(one.dataType), one.nullable) for one in schema.fields])


def added(table: StructType, rows: StructType) -> list[StructField]:
    """The columns that rows have and the table lacks. `Misfit` if one of the others does not fit."""
    known = {one.name.lower(): one for one in table.fields}
    given = {one.name.lower() for one in rows.fields}
    for name, column in known.items():
        if name not in given and not column.nullable:
            raise Misfit(
                f"the table's column '{column.name}' is NOT NULL, and the rows have none of that name"
            )
    fresh = []
    for field in nullable(rows).fields:
        column_or_none = known.get(field.name.lower())
        if column_or_none is None:
            fresh.append(field)
        elif not _fits(field.dataType, column_or_none.dataType):
            raise Misfit(
                f"the column '{field.name}' is {field.dataType.simpleString()}, in the table it is "
                f"{column_or_none.dataType.simpleString()}: cast it, or write it under another name"
            )
    return fresh


def _fits(rows: DataType, table: DataType) -> bool:
    if _loose(rows) == _loose(table):
        return True
    if isinstance(rows, DecimalType) and isinstance(table, DecimalType):
        whole = table.precision - table.scale >= rows.precision - rows.scale
        return whole and table.scale >= rows.scale
    return isinstance(table, WIDER.get(type(rows), ()))
