"""A schema as tables that a kernel follows: one row of numbers for every type in it, and the names of fields.

Types are *nodes*, numbered so that the fields of a struct are neighbours. Every node has a cell for each index of its
*level*. Level 0 is the rows; the elements of an array, and the entries of a map, are a level of their own, which
grows as they are found. So a column of a nested type is as simple as any other: its cells are in the order in which
Arrow wants them.

A program is compiled from a `Shape`: what a kernel needs to know of a type, whoever it comes from (`spark_shapes`).
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

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

MAX_DEPTH = 30


@dataclass(frozen=True)
class Program:
    nodes: npt.NDArray[np.int64]
    names: npt.NDArray[np.uint8]  # of all nodes, one after the other
    name_ends: npt.NDArray[np.int64]
    levels: int
    symbols: dict[int, Any] = field(default_factory=dict)  # only Avro has enums


@dataclass(frozen=True)
class Shape:
    """A type: its kind, `LOW` and `HIGH`, and what is below it: fields, an element, or a key and a value."""

    kind: int
    low: int = 0
    high: int = 0
    below: tuple["Field", ...] = ()


class Field(NamedTuple):
    name: str
    is_required: bool
    shape: Shape


class _Compiler:
    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.names: list[bytes] = []
        self.levels = 1

    def add(self, fields: tuple[Field, ...], level: int) -> int:
        """Nodes for the fields, neighbours; the number of the first."""
        first = len(self.rows)
        for one in fields:
            self.rows.append([OTHER, level, 0, 0, 0, 0, int(one.is_required), 0, 0, 0])
            self.names.append(one.name.encode())
        return first

    def fill(self, node: int, shape: Shape, depth: int) -> None:
        row = self.rows[node]
        if depth > MAX_DEPTH:
            return
        row[KIND], row[LOW], row[HIGH] = shape.kind, shape.low, shape.high
        if shape.kind == STRUCT:
            self._fill_below(row, shape.below, row[LEVEL], depth)
        elif shape.kind in (ARRAY, MAP):
            row[INNER] = self.levels
            self.levels += 1
            self._fill_below(row, shape.below, row[INNER], depth)

    def _fill_below(self, row: list[int], fields: tuple[Field, ...], level: int, depth: int) -> None:
        row[FIRST], row[COUNT] = self.add(fields, level), len(fields)
        row[NEEDED] = sum(one.is_required for one in fields)
        for number, one in enumerate(fields):
            self.fill(row[FIRST] + number, one.shape, depth + 1)


def compile_shape(shape: Shape) -> Program:
    compiler = _Compiler()
    root = compiler.add((Field("", False, shape),), 0)
    compiler.fill(root, shape, 0)
    names = b"".join(compiler.names) or b"\0"
    lengths = [len(name) for name in compiler.names]
    return Program(
        np.array(compiler.rows, np.int64),
        read_only(np.frombuffer(names, np.uint8)),
        read_only(np.cumsum([0, *lengths]).astype(np.int64)),
        compiler.levels,
    )
