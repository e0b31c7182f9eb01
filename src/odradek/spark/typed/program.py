"""A schema as tables that a kernel follows: one row of numbers for every type in it, and the names of fields.

Types are *nodes*, numbered so that the fields of a struct are neighbours. Every node has a cell for each index of its
*level*. Level 0 is the rows; the elements of an array, and the entries of a map, are a level of their own, which
grows as they are found. So a column of a nested type is as simple as any other: its cells are in the order in which
Arrow wants them.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
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
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from odradek.spark.compiled import read_only

# Kinds of nodes. OTHER is for types of which only null is decided.
(
    STRUCT,
    ARRAY,
    MAP,
    STRING,
    BOOLEAN,
    WHOLE,
    DOUBLE,
    FLOAT,
    DECIMAL,
    DATE,
    TIMESTAMP,
    LOCAL_TIMESTAMP,
    OTHER,
) = range(13)

# Columns of the table of nodes. FIRST and COUNT: the nodes below. INNER: the level of elements. LOW and HIGH: limits
# of a whole number; precision and scale of a decimal. NEEDED: how many of the nodes below are required. BASE: where its
# cells begin, which differs by batch.
KIND, LEVEL, BASE, FIRST, COUNT, NEEDED, REQUIRED, INNER, LOW, HIGH = range(10)

KINDS: dict[type[DataType], int] = {
    BooleanType: BOOLEAN,
    DoubleType: DOUBLE,
    FloatType: FLOAT,
    DateType: DATE,
    TimestampType: TIMESTAMP,
    TimestampNTZType: LOCAL_TIMESTAMP,
}
WHOLE_BITS: dict[type[DataType], int] = {ByteType: 7, ShortType: 15, IntegerType: 31, LongType: 63}
MAX_DEPTH = 30


@dataclass(frozen=True)
class Program:
    nodes: npt.NDArray[np.int64]
    names: npt.NDArray[np.uint8]  # of all nodes, one after the other
    name_ends: npt.NDArray[np.int64]
    levels: int
    symbols: dict[int, Any] = field(default_factory=dict)  # only Avro has enums


class _Compiler:
    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.names: list[bytes] = []
        self.levels = 1

    def add(self, fields: list[StructField], level: int) -> int:
        """Nodes for the fields, neighbours; the number of the first."""
        first = len(self.rows)
        for one in fields:
            self.rows.append([OTHER, level, 0, 0, 0, 0, int(not one.nullable), 0, 0, 0])
            self.names.append(one.name.encode())
        return first

    def fill(self, node: int, kind: DataType, depth: int) -> None:
        row = self.rows[node]
        if depth > MAX_DEPTH:
            return
        if isinstance(kind, StructType):
            if len({one.name for one in kind.fields}) < len(kind.fields):
                return  # which of two fields of one name gets the value is Spark's to say
            row[KIND] = STRUCT
            self._fill_below(row, kind.fields, row[LEVEL], depth)
        elif isinstance(kind, ArrayType):
            row[KIND] = ARRAY
            self._fill_elements(row, [StructField("element", kind.elementType)], depth)
        elif isinstance(kind, MapType):
            if type(kind.keyType) is StringType:
                row[KIND] = MAP
                entry = [StructField("key", kind.keyType), StructField("value", kind.valueType)]
                self._fill_elements(row, entry, depth)
        else:
            row[KIND], row[LOW], row[HIGH] = _scalar(kind)

    def _fill_elements(self, row: list[int], fields: list[StructField], depth: int) -> None:
        row[INNER] = self.levels
        self.levels += 1
        self._fill_below(row, fields, row[INNER], depth)

    def _fill_below(self, row: list[int], fields: list[StructField], level: int, depth: int) -> None:
        row[FIRST], row[COUNT] = self.add(fields, level), len(fields)
        row[NEEDED] = sum(not one.nullable for one in fields)
        for number, one in enumerate(fields):
            self.fill(row[FIRST] + number, one.dataType, depth + 1)


def _scalar(kind: DataType) -> tuple[int, int, int]:
    if type(kind) is StringType:
        return STRING, 0, 0
    if type(kind) in WHOLE_BITS:
        limit = 1 << WHOLE_BITS[type(kind)]
        return WHOLE, -limit, limit - 1
    if isinstance(kind, DecimalType):
        return DECIMAL, kind.precision, kind.scale
    return KINDS.get(type(kind), OTHER), 0, 0


def compile_schema(schema: StructType) -> Program:
    compiler = _Compiler()
    root = compiler.add([StructField("", schema)], 0)
    compiler.fill(root, schema, 0)
    names = b"".join(compiler.names) or b"\0"
    lengths = [len(name) for name in compiler.names]
    return Program(
        np.array(compiler.rows, np.int64),
        read_only(np.frombuffer(names, np.uint8)),
        read_only(np.cumsum([0, *lengths]).astype(np.int64)),
        compiler.levels,
    )
