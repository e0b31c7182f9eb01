"""Turns a kernel's cells into Arrow arrays, in exactly the types that Spark expects.

The cells of all nodes are in one array of 64-bit numbers, and beside each is a byte that says whether it is not null.
Pages that no cell is written to take no memory, so there may be room for more elements than there are.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from odradek.spark.compiled import read_only
from odradek.spark.typed import program as P
from odradek.spark.typed.avro_program import BINARY, AvroProgram
from odradek.spark.typed.program import Program
from odradek.spark.typed.texts import gather, spanned_bytes

Bytes = npt.NDArray[np.uint8]

WIDTHS = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


@dataclass(frozen=True)
class Values:
    """A binary column as the decoder has it: bytes, ends, and a bit for each value that is not null."""

    data: Bytes
    ends: npt.NDArray[np.int32]
    valid: Bytes

    @property
    def rows(self) -> int:
        return len(self.ends) - 1

    @classmethod
    def of(cls, column: pa.Array) -> "Values":
        """A column of Arrow's type binary."""
        _, ends, data = column.buffers()
        count = len(column)
        numbers = np.frombuffer(ends, np.int32)[column.offset : column.offset + count + 1]
        whole = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        valid = np.packbits(column.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
        return cls(whole[numbers[0] : numbers[-1]].copy(), numbers - numbers[0], valid)


class Cells:
    """Room for what a kernel finds in some values."""

    def __init__(self, program: Program | AvroProgram, rows: int, most_elements: int) -> None:
        self._symbols = program.symbols
        self.nodes = program.nodes.copy()
        sizes = np.where(self.nodes[:, P.LEVEL] == 0, rows, most_elements)
        self.nodes[:, P.BASE] = np.cumsum(sizes) - sizes
        self.cells = np.empty(int(sizes.sum()), np.int64)
        self.present = np.zeros(int(sizes.sum()), np.uint8)
        self.counts = np.zeros(program.levels, np.int64)
        self.undecided = np.zeros(rows, np.uint8)
        self._rows = rows

    def array(self, data: Bytes, node: int, kind: Any) -> pa.Array:
        """The column of a node, with those below it."""
        facts = self.nodes[node]
        base, level = int(facts[P.BASE]), int(facts[P.LEVEL])
        size = self._rows if level == 0 else int(self.counts[level])
        present, cells = self.present[base : base + size], self.cells[base : base + size]
        nulls = size - int(np.count_nonzero(present))
        bitmap = pa.py_buffer(np.packbits(present, bitorder="little")) if nulls else None
        if facts[P.KIND] == P.OTHER:
            return pa.nulls(size, kind)
        if facts[P.KIND] <= P.MAP:
            return self._nested(data, facts, kind, size, bitmap, nulls, np.where(present, cells, 0))
        if node in self._symbols:
            indices = pa.array(cells, pa.int64(), mask=present == 0)
            return self._symbols[node].take(indices).cast(kind)
        if facts[P.KIND] in (P.STRING, BINARY):
            return strings(data, cells, present, kind, bitmap, nulls)
        return pa.Array.from_buffers(kind, size, [bitmap, pa.py_buffer(_packed(kind, cells))], nulls)

    def _nested(
        self, data: Bytes, facts: Any, kind: Any, size: int, bitmap: Any, nulls: int, lengths: Any
    ) -> pa.Array:
        first = int(facts[P.FIRST])
        if facts[P.KIND] == P.STRUCT:
            children = [self.array(data, first + index, field.type) for index, field in enumerate(kind)]
            return pa.Array.from_buffers(kind, size, [bitmap], nulls, children=children)
        ends = np.zeros(size + 1, np.int32)
        np.cumsum(lengths, out=ends[1:])
        if facts[P.KIND] == P.ARRAY:
            child = self.array(data, first, kind.value_type)
        else:
            pair = pa.struct([kind.key_field, kind.item_field])
            both = [self.array(data, first + index, field.type) for index, field in enumerate(pair)]
            child = pa.Array.from_buffers(pair, len(both[0]), [None], 0, children=both)
        return pa.Array.from_buffers(kind, size, [bitmap, pa.py_buffer(ends)], nulls, children=[child])


def strings(data: Bytes, spans: Any, present: Bytes, kind: Any, bitmap: Any, nulls: int) -> pa.Array:
    ends, target = np.empty(len(spans) + 1, np.int32), np.empty(spanned_bytes(spans, present), np.uint8)
    used = gather(read_only(data), spans, present, ends, target)
    buffers = [bitmap, pa.py_buffer(ends), pa.py_buffer(target[:used])]
    return pa.Array.from_buffers(kind, len(spans), buffers, nulls)


def _packed(kind: Any, cells: npt.NDArray[np.int64]) -> Any:
    """The cells as Arrow keeps values of that type."""
    if pa.types.is_boolean(kind):
        return np.packbits(cells.astype(np.uint8) & 1, bitorder="little")
    if pa.types.is_decimal(kind):
        return np.stack([cells, cells >> 63], axis=1)
    if pa.types.is_floating(kind):
        with np.errstate(all="ignore"):
            return cells.view(np.float64).astype(np.float32) if kind.bit_width == 32 else cells
    return cells.astype(WIDTHS[kind.bit_width], copy=False)


def kept(values: Values, undecided: Bytes, kind: Any) -> pa.Array:
    """The bytes of undecided values; null for the others."""
    nulls = values.rows - int(np.count_nonzero(undecided))
    if nulls == values.rows:
        return pa.nulls(values.rows, kind)
    starts, lengths = values.ends[:-1].astype(np.int64), np.diff(values.ends).astype(np.int64)
    bitmap = pa.py_buffer(np.packbits(undecided, bitorder="little")) if nulls else None
    return strings(values.data, starts << 32 | lengths << 1, undecided, kind, bitmap, nulls)
