"""JSON objects to cells: one pass over the bytes, no object per row.

A row is decided if its value is exactly one JSON object, every known field has the type's own form (a number for a
number, not "12"), and no known field comes twice. Fields that the schema does not have are skipped, but their syntax is
checked. Whatever else is found leaves the row undecided, and takes back what was written for it.

Objects and arrays that are open are frames on a stack; there is no recursion. A frame is a node of the program, how
many entries it has had, how many required fields it still lacks, and where its next field is expected: usually objects
have their fields in the same order.

`read_object` is long, and tests for blanks in place, because this is what the machine code is good at: a name read by
a function of its own costs a tenth, even if that is `inlined`, a value in one, or tests for blanks in one, a quarter
to as much again as all the rest, and arrays passed as a tuple twice as much (CPU time of 50,000 values).
"""

import numpy as np

from odradek.spark.compiled import compiled, inlined
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
from odradek.spark.typed.numbers import skip_number
from odradek.spark.typed.program import (
    ARRAY,
    BASE,
    BOOLEAN,
    COUNT,
    DECIMAL,
    FIRST,
    HIGH,
    INNER,
    KIND,
    LOW,
    MAP,
    MAX_DEPTH,
    NEEDED,
    OTHER,
    REQUIRED,
    STRING,
    STRUCT,
)
from odradek.spark.typed.scalars import number_cell, time_cell
from odradek.spark.typed.texts import scan_string, span_of

BLANK = 32
QUOTE, COMMA, COLON, OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT = 34, 44, 58, 91, 93, 123, 125
MAX_NAME_BYTES = 10_000  # Jackson reads names of 50,000 and strings of 20 million characters
MAX_STRING_BYTES = 10_000_000
MAX_SKIPPED_DEPTH = 60

# Columns of a frame.
NODE, ENTRIES, LACKING, EXPECTED, STAMP = range(5)
FRAME_COLUMNS = 5

# Instead of the node of a field.
UNKNOWN, REPEATED = -1, -2
FIRST_OF_NULL = 110


@compiled
def skip_space(data: Bytes, position: int, end: int) -> int:
    while position < end and data[position] <= 32:
        byte = data[position]
        if byte != 32 and byte != 10 and byte != 13 and byte != 9:
            break
        position += 1
    return position


@compiled
def after_word(data: Bytes, position: int, end: int) -> int:
    """The position after null, true or false; -1 if it is none of them."""
    first = data[position]
    if first == 110 or first == 116:
        if position + 4 > end:
            return -1
        one, two, three = data[position + 1], data[position + 2], data[position + 3]
        is_null = first == 110 and one == 117 and two == 108 and three == 108
        is_true = first == 116 and one == 114 and two == 117 and three == 101
        return position + 4 if is_null or is_true else -1
    if first != 102 or position + 5 > end:
        return -1
    is_false = data[position + 1] == 97 and data[position + 2] == 108
    is_false = is_false and data[position + 3] == 115 and data[position + 4] == 101
    return position + 5 if is_false else -1


@compiled
def skip_scalar(data: Bytes, position: int, end: int) -> int:
    if data[position] == QUOTE:
        close, _ = scan_string(data, position + 1, end)
        return -1 if close < 0 or close - position > MAX_STRING_BYTES else close + 1
    if data[position] == 45 or 48 <= data[position] <= 57:
        return skip_number(data, position, end)
    return after_word(data, position, end)


@compiled
def skip_name(data: Bytes, position: int, end: int) -> int:
    """Skip from a name to the value that it names; -1 if there is no name."""
    if position >= end or data[position] != QUOTE:
        return -1
    close, has_escapes = scan_string(data, position + 1, end)
    if close < 0 or has_escapes or close - position > MAX_NAME_BYTES:
        return -1
    position = skip_space(data, close + 1, end)
    if position >= end or data[position] != COLON:
        return -1
    return skip_space(data, position + 1, end)


@compiled
def skip_value(data: Bytes, position: int, end: int) -> int:
    """The position after any JSON value; -1 if it is not one, or nested too deeply.

    The lowest bit of `objects` says what was opened last: 1 is an object, 0 an array.
    """
    depth, objects = 0, np.uint64(0)
    while True:
        if position >= end:
            return -1
        byte = data[position]
        if byte in (OPEN_OBJECT, OPEN_ARRAY):
            if depth == MAX_SKIPPED_DEPTH:
                return -1
            depth += 1
            objects = objects << np.uint64(1) | np.uint64(1 if byte == OPEN_OBJECT else 0)
            position = skip_space(data, position + 1, end)
            if position < end and data[position] == byte + 2:
                position += 1
                depth -= 1
                objects >>= np.uint64(1)
            else:
                if byte == OPEN_OBJECT:
                    position = skip_name(data, position, end)
                    if position < 0:
                        return -1
                continue
        else:
            position = skip_scalar(data, position, end)
            if position < 0:
                return -1
        while depth > 0:  # after a value: the end of what is open, or one more
            position = skip_space(data, position, end)
            if position >= end:
                return -1
            in_object = objects & np.uint64(1) == np.uint64(1)
            if data[position] == COMMA:
                position = skip_space(data, position + 1, end)
                if in_object:
                    position = skip_name(data, position, end)
                    if position < 0:
                        return -1
                break
            if data[position] != (CLOSE_OBJECT if in_object else CLOSE_ARRAY):
                return -1
            position += 1
            depth -= 1
            objects >>= np.uint64(1)
        if depth == 0:
            return position


@compiled
def is_name(data: Bytes, start: int, length: int, names: Bytes, name_ends: Int64s, node: int) -> bool:
    at = name_ends[node]
    if name_ends[node + 1] - at != length:
        return False
    for index in range(length):  # noqa: SIM110 - numba
        if data[start + index] != names[at + index]:
            return False
    return True


@compiled
def find_field(
    data: Bytes,
    start: int,
    length: int,
    names: Bytes,
    name_ends: Int64s,
    first: int,
    count: int,
    expected: int,
) -> int:
    """The field of that name, looked for from the expected one on; -1 for none."""
    for step in range(count):
        index = expected + step
        if index >= count:
            index -= count
        if is_name(data, start, length, names, name_ends, first + index):
            return index
    return -1


@compiled
def scalar_cell(
    data: Bytes, position: int, end: int, kind: int, low: int, high: int, zone_s: int
) -> tuple[int, int]:
    """The position after a value without parts, -1 if it is not decided, and its cell."""
    if kind == OTHER:
        return -1, 0
    byte = data[position]
    if byte == QUOTE:
        close, has_escapes = scan_string(data, position + 1, end)
        if close < 0 or close - position > MAX_STRING_BYTES:
            return -1, 0
        if kind == STRING:
            return close + 1, span_of(position + 1, close, has_escapes)
        if kind <= DECIMAL or has_escapes:
            return -1, 0
        good, cell = time_cell(data, position + 1, close, kind, zone_s)
        return (close + 1 if good else -1), cell
    if kind == BOOLEAN:
        return after_word(data, position, end), 1 if byte == 116 else 0
    if byte == 45 or 48 <= byte <= 57:
        return number_cell(data, position, end, kind, low, high)
    return -1, 0


@inlined
def open_frame(frames: Table, depth: int, node: int, nodes: Table, stamps: Int64s) -> None:
    stamps[0] += 1
    frames[depth, NODE], frames[depth, ENTRIES], frames[depth, EXPECTED] = node, 0, 0
    frames[depth, STAMP], frames[depth, LACKING] = stamps[0], nodes[node, NEEDED]


@inlined
def enter_field(
    data: Bytes,
    start: int,
    close: int,
    names: Bytes,
    name_ends: Int64s,
    nodes: Table,
    frames: Table,
    depth: int,
    seen: Int64s,
) -> int:
    """The node of a struct's field; `UNKNOWN` if the schema does not have it, `REPEATED` if it comes twice."""
    first, count = nodes[frames[depth, NODE], FIRST], nodes[frames[depth, NODE], COUNT]
    expected = frames[depth, EXPECTED]
    index = find_field(data, start, close - start, names, name_ends, first, count, expected)
    if index < 0:
        return UNKNOWN
    frames[depth, EXPECTED] = index + 1 if index + 1 < count else 0
    if seen[first + index] == frames[depth, STAMP]:
        return REPEATED
    seen[first + index] = frames[depth, STAMP]
    return first + index  # type: ignore[no-any-return]


@compiled
def enter_entry(
    data: Bytes,
    start: int,
    close: int,
    nodes: Table,
    frames: Table,
    depth: int,
    cells: Int64s,
    present: Bytes,
    counts: Int64s,
) -> int:
    """Keep the key of a map's entry. Returns the node of its value; `REPEATED` if the key comes twice, or may."""
    top = frames[depth, NODE]
    level, first = nodes[top, INNER], nodes[top, FIRST]
    counts[level] += 1
    key = nodes[first, BASE] + counts[level] - 1
    cells[key], present[key] = span_of(start, close, False), 1
    entries = frames[depth, ENTRIES]
    if entries > MAX_ENTRIES or is_repeated(data, cells, key - entries + 1, key):
        return REPEATED
    return first + 1  # type: ignore[no-any-return]


@compiled
def read_object(
    data: Bytes, position: int, end: int, row: int,
    nodes: Table, names: Bytes, name_ends: Int64s, zone_s: int,
    cells: Int64s, present: Bytes, counts: Int64s, seen: Int64s, stamps: Int64s, frames: Table,
) -> bool:  # fmt: skip
    """True if the row is decided."""
    position = skip_space(data, position, end)
    if position >= end or data[position] != OPEN_OBJECT or nodes[0, KIND] != STRUCT:
        return False
    position += 1
    depth = 0
    open_frame(frames, 0, 0, nodes, stamps)
    while True:
        top = frames[depth, NODE]
        kind = nodes[top, KIND]
        if position < end and data[position] <= BLANK:
            position = skip_space(data, position, end)
        if position >= end:
            return False
        if data[position] == (CLOSE_ARRAY if kind == ARRAY else CLOSE_OBJECT):
            position += 1
            if kind == STRUCT:
                if frames[depth, LACKING] > 0:
                    return False
            else:
                cells[cell_of(nodes, top, row, counts)] = frames[depth, ENTRIES]
            if depth == 0:
                break
            depth -= 1
            continue
        if frames[depth, ENTRIES] > 0:
            if data[position] != COMMA:
                return False
            position += 1
            if position < end and data[position] <= BLANK:
                position = skip_space(data, position, end)
        frames[depth, ENTRIES] += 1
        child = nodes[top, FIRST]
        if kind == ARRAY:
            if position >= end:
                return False
            counts[nodes[top, INNER]] += 1
        else:
            if position >= end or data[position] != QUOTE:
                return False
            start = position + 1
            close, has_escapes = scan_string(data, start, end)
            if close < 0 or has_escapes or close - start > MAX_NAME_BYTES:
                return False
            position = close + 1
            if position < end and data[position] <= BLANK:
                position = skip_space(data, position, end)
            if position >= end or data[position] != COLON:
                return False
            position += 1
            if position < end and data[position] <= BLANK:
                position = skip_space(data, position, end)
            if position >= end:
                return False
            if kind == STRUCT:
                child = enter_field(data, start, close, names, name_ends, nodes, frames, depth, seen)
                if child == UNKNOWN:
                    position = skip_value(data, position, end)
                    if position < 0:
                        return False
                    continue
            else:
                child = enter_entry(data, start, close, nodes, frames, depth, cells, present, counts)
            if child == REPEATED:
                return False
        byte = data[position]
        if byte == FIRST_OF_NULL:
            position = after_word(data, position, end)
            if position < 0 or nodes[child, REQUIRED] > 0:
                return False
            continue
        cell = cell_of(nodes, child, row, counts)
        child_kind, parent = nodes[child, KIND], depth
        if child_kind <= MAP:
            if byte != (OPEN_ARRAY if child_kind == ARRAY else OPEN_OBJECT) or depth == MAX_DEPTH:
                return False
            position += 1
            depth += 1
            open_frame(frames, depth, child, nodes, stamps)
        elif child_kind == OTHER:
            return False
        else:
            low, high = nodes[child, LOW], nodes[child, HIGH]
            position, cells[cell] = scalar_cell(data, position, end, child_kind, low, high, zone_s)
            if position < 0:
                return False
        present[cell] = 1
        frames[parent, LACKING] -= nodes[child, REQUIRED]
    return skip_space(data, position, end) == end


@compiled
def decode_objects(
    data: Bytes, ends: Int32s, valid: Bytes,
    nodes: Table, names: Bytes, name_ends: Int64s, zone_s: int,
    cells: Int64s, present: Bytes, counts: Int64s, undecided: Bytes,
) -> int:  # fmt: skip
    """Fill the cells of all rows; those of which `undecided` is 1 have none. Returns how many these are.

    `data` are the values one after the other, up to `ends`; `valid` has a bit for each that is not null.
    """
    frames = np.empty((MAX_DEPTH + 1, FRAME_COLUMNS), np.int64)
    seen, stamps = np.zeros(nodes.shape[0], np.int64), np.zeros(1, np.int64)
    before, left = np.empty(counts.size, np.int64), 0
    for row in range(ends.size - 1):
        if not is_valid(valid, row):
            continue
        for level in range(1, counts.size):
            before[level] = counts[level]
        start, end = np.int64(ends[row]), np.int64(ends[row + 1])
        if read_object(
            data, start, end, row,  # type: ignore[arg-type]
            nodes, names, name_ends, zone_s, cells, present, counts, seen, stamps, frames,
        ):  # fmt: skip
            present[nodes[0, BASE] + row] = 1
        else:
            take_back(row, nodes, present, counts, before)
            undecided[row] = 1
            left += 1
    return left
