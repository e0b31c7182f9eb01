"""An Avro schema as tables for the kernel: the nodes of `program`, and for each node what a union has in front of it.

`LOW` is the size of a fixed type (-1: bytes with a length), or the microseconds in a unit of a timestamp; `HIGH` is the
precision of a decimal, the number of an enum's symbols, or the bits of a whole number.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from odradek.spark.typed import program as P
from odradek.spark.typed.avro import AvroSchema

BINARY, ENUM = P.OTHER + 1, P.OTHER + 2
BRANCHES, NULL_BRANCH = 10, 11  # columns after those of `program`; no branches: not a union
SCALARS = {
    "boolean": (P.BOOLEAN, 0, 0),
    "int": (P.WHOLE, 0, 31),
    "long": (P.WHOLE, 0, 63),
    "float": (P.FLOAT, 0, 0),
    "double": (P.DOUBLE, 0, 0),
    "string": (P.STRING, 0, 0),
    "bytes": (BINARY, -1, 0),
}
LOGICAL: dict[tuple[str, str | None], tuple[int, int, int]] = {
    ("int", "date"): (P.DATE, 0, 0),
    ("long", "timestamp-millis"): (P.TIMESTAMP, 1000, 0),
    ("long", "timestamp-micros"): (P.TIMESTAMP, 1, 0),
}


@dataclass(frozen=True)
class AvroProgram:
    nodes: npt.NDArray[np.int64]
    levels: int
    symbols: dict[int, pa.Array]  # of enums, by node


class _Compiler:
    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.symbols: dict[int, pa.Array] = {}
        self.levels = 1
        self._names: dict[str, Any] = {}

    def add(self, count: int, level: int) -> int:
        first = len(self.rows)
        self.rows += [[P.OTHER, level, *[0] * 8, 0, -1] for _ in range(count)]
        return first

    def fill(self, number: int, node: Any, depth: int) -> None:
        row = self.rows[number]
        if isinstance(node, dict) and "name" in node:
            self._names[node["name"]] = node
        node = self._names.get(node, node) if isinstance(node, str) else node
        if isinstance(node, list):
            row[BRANCHES], row[NULL_BRANCH] = len(node), node.index("null") if "null" in node else -1
            others = [one for one in node if one != "null"]
            self.fill(number, others[0], depth)
            return
        kind = str(node["type"]) if isinstance(node, dict) else str(node)
        if depth > P.MAX_DEPTH:
            return
        if kind == "record":
            row[P.KIND] = P.STRUCT
            self._fill_below(row, [field["type"] for field in node["fields"]], row[P.LEVEL], depth)
        elif kind in ("array", "map"):
            row[P.KIND], row[P.INNER] = (P.ARRAY if kind == "array" else P.MAP), self.levels
            self.levels += 1
            below = [node["items"]] if kind == "array" else ["string", node["values"]]
            self._fill_below(row, below, row[P.INNER], depth)
        else:
            row[P.KIND], row[P.LOW], row[P.HIGH] = self._scalar(number, kind, node)

    def _fill_below(self, row: list[int], nodes: list[Any], level: int, depth: int) -> None:
        row[P.FIRST], row[P.COUNT] = self.add(len(nodes), level), len(nodes)
        for index, node in enumerate(nodes):
            self.fill(row[P.FIRST] + index, node, depth + 1)

    def _scalar(self, number: int, kind: str, node: Any) -> tuple[int, int, int]:
        logical = node.get("logicalType") if isinstance(node, dict) else None
        size = node["size"] if kind == "fixed" else -1
        if logical == "decimal":
            return P.DECIMAL, size, node["precision"]
        if kind == "enum":
            self.symbols[number] = pa.array(node["symbols"], pa.string())
            return ENUM, 0, len(node["symbols"])
        if kind == "fixed":
            return BINARY, size, 0
        return LOGICAL.get((kind, logical)) or SCALARS.get(kind, (P.OTHER, 0, 0))


def compile_avro(schema: AvroSchema) -> AvroProgram:
    compiler = _Compiler()
    root = compiler.add(1, 0)
    compiler.fill(root, schema.node, 0)
    return AvroProgram(np.array(compiler.rows, np.int64), compiler.levels, compiler.symbols)
