"""Lines of CSV to cells: one pass over the bytes, no object per row.

A line is decided if it has as many fields as the schema, each in its type's own form: not quoted, or a string of some
text in quotes. Blanks at the ends of a field, quotes within one, backslashes and control characters are left to Spark.
An empty field is null.
"""

import numpy as np

from odradek.spark.compiled import compiled
from odradek.spark.typed.json_kernel import after_word
from odradek.spark.typed.kernel_arrays import Bytes, Int32s, Int64s, Table, is_valid, take_back
from odradek.spark.typed.program import (
    BASE,
    BOOLEAN,
    COUNT,
    DATE,
    DECIMAL,
    FIRST,
    HIGH,
    KIND,
    LOCAL_TIMESTAMP,
    LOW,
    REQUIRED,
    STRING,
    WHOLE,
)
from odradek.spark.typed.scalars import number_cell, time_cell
from odradek.spark.typed.texts import PLAIN, QUOTE, after_character, span_of

COMMA, BLANK = 44, 32


@compiled
def field_end(data: Bytes, position: int, end: int, stop: int) -> int:
    """Return where the byte `stop` or the end is; -1 if there is anything on the way that is not plain text."""
    while position < end and data[position] != stop:
        if PLAIN[data[position]]:
            position += 1
        elif data[position] >= 0x80:
            position = after_character(data, position, end)
            if position < 0:
                return -1
        else:
            return -1
    return position


@compiled
def field_cell(
    data: Bytes, start: int, end: int, kind: int, low: int, high: int, zone_s: int
) -> tuple[bool, int]:
    """The cell of a field that is not empty."""
    if data[start] == BLANK or data[end - 1] == BLANK:
        return False, 0
    if kind == STRING:
        return True, span_of(start, end, False)
    if kind == BOOLEAN:
        after = after_word(data, start, end)
        return after == end and data[start] != 110, 1 if data[start] == 116 else 0
    if WHOLE <= kind <= DECIMAL:
        after, cell = number_cell(data, start, end, kind, low, high)
        return after == end, cell
    if DATE <= kind <= LOCAL_TIMESTAMP:
        return time_cell(data, start, end, kind, zone_s)
    return False, 0


@compiled
def read_line(
    data: Bytes, position: int, end: int, row: int, nodes: Table, zone_s: int, cells: Int64s, present: Bytes
) -> bool:
    """True if the row is decided."""
    count, first = nodes[0, COUNT], nodes[0, FIRST]
    if position == end or count == 0:
        return False
    for node in range(first, first + count):
        cell = nodes[node, BASE] + row
        if position < end and data[position] == QUOTE:
            close = field_end(data, position + 1, end, QUOTE)
            if close <= position + 1 or close == end or nodes[node, KIND] != STRING:
                return False
            if data[position + 1] == BLANK or data[close - 1] == BLANK:
                return False
            cells[cell], present[cell] = span_of(position + 1, close, False), 1
            position = close + 1
        else:
            close = field_end(data, position, end, COMMA)
            if close < 0:
                return False
            if close > position:
                low, high = nodes[node, LOW], nodes[node, HIGH]
                good, cells[cell] = field_cell(data, position, close, nodes[node, KIND], low, high, zone_s)
                if not good:
                    return False
                present[cell] = 1
            elif nodes[node, REQUIRED] > 0:
                return False
            position = close
        if node < first + count - 1:
            if position == end or data[position] != COMMA:
                return False
            position += 1
    return position == end


@compiled
def decode_lines(
    data: Bytes,
    ends: Int32s,
    valid: Bytes,
    nodes: Table,
    zone_s: int,
    cells: Int64s,
    present: Bytes,
    counts: Int64s,
    undecided: Bytes,
) -> int:
    """Fill the cells of all rows; those of which `undecided` is 1 have none. Returns how many these are."""
    left = 0
    for row in range(ends.size - 1):
        if not is_valid(valid, row):
            continue
        start, end = np.int64(ends[row]), np.int64(ends[row + 1])
        if read_line(data, start, end, row, nodes, zone_s, cells, present):  # type: ignore[arg-type]
            present[nodes[0, BASE] + row] = 1
        else:
            take_back(row, nodes, present, counts, counts)
            undecided[row] = 1
            left += 1
    return left
