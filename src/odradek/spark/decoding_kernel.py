"""The inner loop of reading: from the records in a batch to Arrow's columns.

One pass over the bytes, no object per record. Columns are written into arrays that are large enough
(`DecodedRows` says how large), each value once. All that is kept between two batches is
`state`, which counts what has been written.

The bytes are untrusted: no length is used before it was compared with the end of the record and the
batch. Any violation is `CORRUPT`.
"""

import numpy as np
import numpy.typing as npt

from odradek.spark.compiled import compiled, inlined

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

# The fields of `state`.
ROWS, KEY_BYTES, VALUE_BYTES, NULL_KEYS, NULL_VALUES = 0, 1, 2, 3, 4
HEADERS, HEADER_KEY_BYTES, HEADER_VALUE_BYTES, NULL_HEADER_VALUES, ROWS_WITHOUT_HEADERS = 5, 6, 7, 8, 9
STATE_SIZE = 10

OK, CORRUPT = 0, 1
MOST_MS = (
    2**63 - 1
) // 1000  # as microseconds: a time beyond, as of nanoseconds taken for milliseconds, becomes that
MIN_RECORD_BYTES = 7  # length, attributes, two deltas, two lengths, count of headers


@compiled
def read_varint(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """A zigzag varint, and the position after it: -1 where it does not end before `end`."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while position < end:
        byte = np.uint64(data[position])
        position += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            magnitude = np.int64(value >> np.uint64(1))
            return magnitude ^ -np.int64(value & np.uint64(1)), position  # type: ignore[return-value]
        shift += np.uint64(7)
        if shift > np.uint64(63):
            break
    return 0, -1


@compiled
def copy_bytes(source: Bytes, start: int, target: Bytes, at: int, length: int) -> None:
    """Unsigned indices cannot count from the end, so the loop becomes wide moves: fourteen times as fast."""
    source_start, target_start = np.uint64(start), np.uint64(at)
    for index in range(np.uint64(length)):
        target[target_start + index] = source[source_start + index]


@compiled
def set_bit(bitmap: Bytes, index: int) -> None:
    bitmap[index >> 3] |= np.uint8(1 << (index & 7))


@compiled
def read_blob(
    data: Bytes, position: int, end: int, target: Bytes, at: int, ends: Int32s, valid: Bytes, row: int
) -> tuple[int, int]:
    """Copy a nullable byte string to its column. Returns the position after it (-1: corrupt) and its length."""
    length, position = read_varint(data, position, end)
    if position < 0 or length < -1 or length > end - position:
        return -1, 0
    if length < 0:
        ends[row + 1] = at
        return position, -1
    copy_bytes(data, position, target, at, length)
    ends[row + 1] = at + length
    set_bit(valid, row)
    return position + length, length


@inlined
def count_blob(state: Int64s, length: int, size_field: int, nulls_field: int) -> None:
    if length < 0:
        state[nulls_field] += 1
    else:
        state[size_field] += length


@compiled
def read_headers(
    data: Bytes, position: int, end: int, row: int, state: Int64s,
    header_ends: Int32s, header_valid: Bytes,
    keys: Bytes, key_ends: Int32s,
    values: Bytes, value_ends: Int32s, value_valid: Bytes,
) -> int:  # fmt: skip
    """Append a record's headers to the columns of all headers. Returns the position after them, or -1."""
    count, position = read_varint(data, position, end)
    if position < 0 or count < 0 or count > end - position:
        return -1
    for _ in range(count):
        index = state[HEADERS]
        length, position = read_varint(data, position, end)
        if position < 0 or length < 0 or length > end - position:
            return -1
        copy_bytes(data, position, keys, state[HEADER_KEY_BYTES], length)
        position += length
        state[HEADER_KEY_BYTES] += length
        key_ends[index + 1] = state[HEADER_KEY_BYTES]
        position, length = read_blob(
            data, position, end, values, state[HEADER_VALUE_BYTES], value_ends, value_valid, index
        )
        if position < 0:
            return -1
        count_blob(state, length, HEADER_VALUE_BYTES, NULL_HEADER_VALUES)
        state[HEADERS] = index + 1
    header_ends[row + 1] = state[HEADERS]
    if count > 0:
        set_bit(header_valid, row)
    else:
        state[ROWS_WITHOUT_HEADERS] += 1
    return position


@compiled
def decode_records(
    data: Bytes, count: int,
    base_offset: int, last_delta: int,
    base_timestamp_ms: int, append_timestamp_ms: int, has_append_time: bool,
    first_wanted: int, end_wanted: int, with_headers: bool,
    state: Int64s, offsets: Int64s, timestamps_us: Int64s,
    keys: Bytes, key_ends: Int32s, key_valid: Bytes,
    values: Bytes, value_ends: Int32s, value_valid: Bytes,
    header_ends: Int32s, header_valid: Bytes,
    header_keys: Bytes, header_key_ends: Int32s,
    header_values: Bytes, header_value_ends: Int32s, header_value_valid: Bytes,
) -> int:  # fmt: skip
    """Append the records of one batch with offsets in [first_wanted, end_wanted) to the columns."""
    position, batch_end, previous_delta = 0, data.size, -1
    for _ in range(count):
        length, position = read_varint(data, position, batch_end)
        if position < 0 or length < 1 or length > batch_end - position:
            return CORRUPT
        end = position + length
        timestamp_delta, position = read_varint(data, position + 1, end)
        if position < 0:
            return CORRUPT
        delta, position = read_varint(data, position, end)
        if position < 0 or delta <= previous_delta or delta > last_delta:
            return CORRUPT
        previous_delta = delta
        offset = base_offset + delta
        if offset < first_wanted or offset >= end_wanted:
            position = end
            continue
        row = state[ROWS]
        position, length = read_blob(data, position, end, keys, state[KEY_BYTES], key_ends, key_valid, row)
        if position < 0:
            return CORRUPT
        count_blob(state, length, KEY_BYTES, NULL_KEYS)
        position, length = read_blob(
            data, position, end, values, state[VALUE_BYTES], value_ends, value_valid, row
        )
        if position < 0:
            return CORRUPT
        count_blob(state, length, VALUE_BYTES, NULL_VALUES)
        if with_headers:
            position = read_headers(
                data, position, end, row, state, header_ends, header_valid,
                header_keys, header_key_ends, header_values, header_value_ends, header_value_valid,
            )  # fmt: skip
            if position != end:
                return CORRUPT
        offsets[row] = offset
        timestamp_ms = append_timestamp_ms if has_append_time else base_timestamp_ms + timestamp_delta
        timestamps_us[row] = max(-MOST_MS, min(timestamp_ms, MOST_MS)) * 1000
        state[ROWS] = row + 1
        position = end
    return OK if position == batch_end else CORRUPT
