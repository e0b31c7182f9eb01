"""Avro records to cells: one pass over the bytes, no object per row.

Bytes that follow the schema are decided. The others, and what our own decoder may see differently (text that is not
UTF-8, a map with a key twice, times before the year 1 or after 9999), are left to that one.

Records, arrays and maps that are open are frames on a stack: the node; its next field, or how many entries are left of
the block; and how many entries there have been.

`read_record` has all of that in place: a map's key in a function of its own costs an eighth, an element's beginning
almost as much as all the rest (CPU time of records with an array and a map).
"""

import numpy as np

from odradek.spark.compiled import compiled
from odradek.spark.decoding_kernel import read_varint
from odradek.spark.typed.avro_program import BINARY, BRANCHES, ENUM, NULL_BRANCH
from odradek.spark.typed.kernel_arrays import (
    MAX_ENTRIES,
    Bytes,
    Int32s,
    Int64s,
    Table,
    cell_of,
    is_repeated,
    is_valid,
    take_back,
)
from odradek.spark.typed.numbers import WHOLE_POWERS, bits_of
from odradek.spark.typed.program import (
    BASE,
    BOOLEAN,
    COUNT,
    DATE,
    DECIMAL,
    DOUBLE,
    FIRST,
    FLOAT,
    HIGH,
    INNER,
    KIND,
    LOW,
    MAP,
    MAX_DEPTH,
    STRING,
    STRUCT,
    TIMESTAMP,
    WHOLE,
)
from odradek.spark.typed.texts import is_utf8, span_of

NODE, NEXT, ENTRIES = range(3)
FRAME_COLUMNS = 3
FIRST_DAY, LAST_DAY = -719162, 2932896  # of the years 1 and 9999
DAY_US = 86_400_000_000
LONGEST_VARINT = 10


@compiled
def read_long(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """A number, and the position after it; -1 if it does not end, or is longer than 64 bits."""
    number, after = read_varint(data, position, end)
    if after - position == LONGEST_VARINT and data[after - 1] > 1:
        return 0, -1
    return number, after


@compiled
def read_bytes(data: Bytes, position: int, end: int, size: int) -> tuple[int, int]:
    """Return where bytes begin and end: as many as the type has, or as many as the length before them says. -1: not
    there.
    """
    if size < 0:
        size, position = read_long(data, position, end)
        if position < 0 or size < 0:
            return -1, -1
    if size > end - position:
        return -1, -1
    return position, position + size


@compiled
def read_double(data: Bytes, position: int) -> float:
    bits = np.uint64(0)
    for index in range(8):
        bits |= np.uint64(data[position + index]) << np.uint64(8 * index)
    return np.uint64(bits).view(np.float64)


@compiled
def read_float(data: Bytes, position: int) -> float:
    bits = np.uint32(0)
    for index in range(4):
        bits |= np.uint32(np.uint32(data[position + index]) << np.uint32(8 * index))
    return np.float64(np.uint32(bits).view(np.float32))


@compiled
def unscaled(data: Bytes, start: int, end: int, precision: int) -> tuple[bool, int]:
    """A decimal's whole number, of at most eight bytes and 18 digits."""
    if end - start > 8:
        return False, 0
    number = np.int64(0)
    for index in range(start, end):
        digit = np.int64(data[index])
        if index == start and digit > 127:
            digit -= 256
        number = (number << 8) | digit if index > start else digit
    limit = WHOLE_POWERS[min(precision, 18)]
    return -limit < number < limit, number  # type: ignore[return-value]


@compiled
def avro_cell(data: Bytes, position: int, end: int, kind: int, low: int, high: int) -> tuple[int, int]:
    """The position after a value without parts, -1 if it is not decided, and its cell."""
    if kind in (STRING, BINARY, DECIMAL):
        start, after = read_bytes(data, position, end, low if kind != STRING else -1)
        if after < 0:
            return -1, 0
        if kind == DECIMAL:
            good, number = unscaled(data, start, after, high)
            return (after if good else -1), number
        if kind == STRING and not is_utf8(data, start, after):
            return -1, 0
        return after, span_of(start, after, False)
    if kind == BOOLEAN:
        return (position + 1 if position < end and data[position] <= 1 else -1), data[position]
    if kind == DOUBLE:
        if position + 8 > end:
            return -1, 0
        return position + 8, bits_of(read_double(data, position))  # type: ignore[return-value]
    if kind == FLOAT:
        if position + 4 > end:
            return -1, 0
        return position + 4, bits_of(read_float(data, position))  # type: ignore[return-value]
    number, after = read_long(data, position, end)
    if after < 0:
        return -1, 0
    good = False
    if kind == WHOLE:
        good = high == 63 or -(1 << 31) <= number < 1 << 31
    elif kind == DATE:
        good = FIRST_DAY <= number <= LAST_DAY
    elif kind == ENUM:
        good = 0 <= number < high
    elif kind == TIMESTAMP:
        good = FIRST_DAY * DAY_US // low <= number < (LAST_DAY + 1) * DAY_US // low
        number *= low
    return (after if good else -1), number


@compiled
def read_record(
    data: Bytes, position: int, end: int, row: int,
    nodes: Table, cells: Int64s, present: Bytes, counts: Int64s, most_elements: int, frames: Table,
) -> bool:  # fmt: skip
    """True if the row is decided."""
    depth = 0
    frames[0, NODE], frames[0, NEXT], frames[0, ENTRIES] = 0, 0, 0
    while depth >= 0:
        top = frames[depth, NODE]
        kind, child = nodes[top, KIND], nodes[top, FIRST]
        if kind == STRUCT:
            index = frames[depth, NEXT]
            if index == nodes[top, COUNT]:
                depth -= 1
                continue
            frames[depth, NEXT] = index + 1
            child += index
        else:
            if frames[depth, NEXT] == 0:
                count, position = read_long(data, position, end)
                if position < 0:
                    return False
                if count == 0:
                    cells[cell_of(nodes, top, row, counts)] = frames[depth, ENTRIES]
                    depth -= 1
                    continue
                if count < 0:
                    count = -count
                    _, position = read_long(data, position, end)
                if position < 0 or count < 0 or count > end - position:
                    return False
                frames[depth, NEXT] = count
            frames[depth, NEXT] -= 1
            frames[depth, ENTRIES] += 1
            level = nodes[top, INNER]
            if counts[level] == most_elements:
                return False
            counts[level] += 1
            if kind == MAP:
                start, position = read_bytes(data, position, end, -1)
                if position < 0 or not is_utf8(data, start, position):
                    return False
                key = nodes[child, BASE] + counts[level] - 1
                cells[key], present[key] = span_of(start, position, False), 1
                entries = frames[depth, ENTRIES]
                if entries > MAX_ENTRIES or is_repeated(data, cells, key - entries + 1, key):
                    return False
                child += 1
        if nodes[child, BRANCHES] > 0:
            branch, position = read_long(data, position, end)
            if position < 0 or branch < 0 or branch >= nodes[child, BRANCHES]:
                return False
            if branch == nodes[child, NULL_BRANCH]:
                continue
        child_kind, cell = nodes[child, KIND], cell_of(nodes, child, row, counts)
        if child_kind <= MAP:
            if depth == MAX_DEPTH:
                return False
            depth += 1
            frames[depth, NODE], frames[depth, NEXT], frames[depth, ENTRIES] = child, 0, 0
        else:
            low, high = nodes[child, LOW], nodes[child, HIGH]
            position, cells[cell] = avro_cell(data, position, end, child_kind, low, high)
            if position < 0:
                return False
        present[cell] = 1
    return position == end


@compiled
def decode_records(
    data: Bytes,
    ends: Int32s,
    valid: Bytes,
    frame_bytes: int,
    is_readable: Bytes,
    nodes: Table,
    cells: Int64s,
    present: Bytes,
    counts: Int64s,
    most_elements: int,
    undecided: Bytes,
) -> int:
    """Fill the cells of all rows that `is_readable` names; the others, and those in doubt, stay undecided."""
    frames = np.empty((MAX_DEPTH + 1, FRAME_COLUMNS), np.int64)
    before, left = np.empty(counts.size, np.int64), 0
    for row in range(ends.size - 1):
        if not is_valid(valid, row):
            continue
        before[:] = counts
        start, end = np.int64(ends[row]) + frame_bytes, np.int64(ends[row + 1])
        if is_readable[row] and read_record(
            data,
            start,  # type: ignore[arg-type]
            end,  # type: ignore[arg-type]
            row,
            nodes,
            cells,
            present,
            counts,
            most_elements,
            frames,
        ):
            present[nodes[0, BASE] + row] = 1
        else:
            take_back(row, nodes, present, counts, before)
            undecided[row] = 1
            left += 1
    return left


@compiled
def schema_ids(data: Bytes, ends: Int32s) -> Int64s:
    """The id in each value's five-byte frame; -1 where there is none."""
    ids = np.full(ends.size - 1, -1, np.int64)
    for row in range(ids.size):
        start = np.int64(ends[row])
        if ends[row + 1] - start >= 5 and data[start] == 0:
            number = np.int64(0)
            for index in range(start + 1, start + 5):
                number = number << 8 | np.int64(data[index])
            ids[row] = number
    return ids
