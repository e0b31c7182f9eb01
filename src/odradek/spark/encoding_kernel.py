"""The inner loops of writing: which partition a row goes to, and rows as records of a batch.

`choose_partitions` is Java's default partitioner: murmur2 of the key; rows without a key stay with one
partition for about a batch's worth of bytes and then move on to the next.
"""

import numpy as np
import numpy.typing as npt

from odradek.spark.compiled import compiled
from odradek.spark.decoding_kernel import copy_bytes

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NO_PARTITION = -1
MAX_RECORD_OVERHEAD = 36  # all of a record's varints at their longest, headers apart
MAX_HEADER_OVERHEAD = 10

# The fields of `sticky`: the partition for rows without a key, and the bytes it got since it was chosen.
STICKY_PARTITION, STICKY_BYTES = 0, 1


@compiled
def murmur2(data: Bytes, start: int, length: int) -> int:
    """Hashes a key as Java's clients do: 32 bits, little endian, with their seed."""
    mixer, mask = np.uint64(0x5BD1E995), np.uint64(0xFFFFFFFF)
    state = np.uint64(0x9747B28C) ^ np.uint64(length)
    for word in range(length >> 2):
        at = start + 4 * word
        chunk = (
            np.uint64(data[at])
            | np.uint64(data[at + 1]) << np.uint64(8)
            | np.uint64(data[at + 2]) << np.uint64(16)
            | np.uint64(data[at + 3]) << np.uint64(24)
        )
        chunk = (chunk * mixer) & mask
        chunk ^= chunk >> np.uint64(24)
        chunk = (chunk * mixer) & mask
        state = ((state * mixer) & mask) ^ chunk
    rest = length & 3
    at = start + length - rest
    if rest == 3:
        state ^= np.uint64(data[at + 2]) << np.uint64(16)
    if rest >= 2:
        state ^= np.uint64(data[at + 1]) << np.uint64(8)
    if rest >= 1:
        state ^= np.uint64(data[at])
        state = (state * mixer) & mask
    state ^= state >> np.uint64(13)
    state = (state * mixer) & mask
    state ^= state >> np.uint64(15)
    return np.int64(state)  # type: ignore[return-value]


@compiled
def choose_partitions(
    rows: Int64s,
    keys: Bytes,
    key_ends: Int32s,
    key_valid: Flags,
    value_ends: Int32s,
    given: Int32s,
    partition_count: int,
    sticky: Int64s,
    sticky_limit: int,
    chosen: Int32s,
) -> None:
    """The partition of every row: the one it names, or its key's, or the sticky one."""
    for index in range(rows.size):
        row = rows[index]
        if given.size and given[row] != NO_PARTITION:
            chosen[index] = given[row]
        elif key_valid[row]:
            start, end = key_ends[row], key_ends[row + 1]
            chosen[index] = (murmur2(keys, start, end - start) & 0x7FFFFFFF) % partition_count
        else:
            chosen[index] = sticky[STICKY_PARTITION]
            sticky[STICKY_BYTES] += value_ends[row + 1] - value_ends[row] + MAX_RECORD_OVERHEAD
            if sticky[STICKY_BYTES] >= sticky_limit:
                sticky[STICKY_BYTES] = 0
                sticky[STICKY_PARTITION] = (sticky[STICKY_PARTITION] + 1) % partition_count


@compiled
def order_by_partition(rows: Int64s, chosen: Int32s, bounds: Int64s, ordered: Int64s) -> None:
    """Rows of partition p to ordered[bounds[p]:bounds[p + 1]], in the order they came. `bounds` begins as zeros."""
    for index in range(chosen.size):
        bounds[chosen[index] + 1] += 1
    for partition in range(1, bounds.size):
        bounds[partition] += bounds[partition - 1]
    places = bounds[:-1].copy()
    for index in range(chosen.size):
        ordered[places[chosen[index]]] = rows[index]
        places[chosen[index]] += 1


@compiled
def varint_size(value: int) -> int:
    bits = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while bits > np.uint64(0x7F):
        bits >>= np.uint64(7)
        size += 1
    return size


@compiled
def write_varint(value: int, target: Bytes, at: int) -> int:
    bits = np.uint64((value << 1) ^ (value >> 63))
    while bits > np.uint64(0x7F):
        target[at] = np.uint8((bits & np.uint64(0x7F)) | np.uint64(0x80))
        bits >>= np.uint64(7)
        at += 1
    target[at] = np.uint8(bits)
    return at + 1


@compiled
def blob_size(ends: Int32s, valid: Flags, row: int) -> int:
    if not valid[row]:
        return 1
    length: int = ends[row + 1] - ends[row]
    return varint_size(length) + length


@compiled
def write_blob(data: Bytes, ends: Int32s, valid: Flags, row: int, target: Bytes, at: int) -> int:
    if not valid[row]:
        return write_varint(-1, target, at)
    length: int = ends[row + 1] - ends[row]
    at = write_varint(length, target, at)
    copy_bytes(data, ends[row], target, at, length)
    return at + length


@compiled
def headers_size(
    row: int,
    header_ends: Int32s,
    header_key_ends: Int32s,
    header_key_valid: Flags,
    header_value_ends: Int32s,
    header_value_valid: Flags,
) -> int:
    if header_ends.size == 0:
        return 1
    first, last = header_ends[row], header_ends[row + 1]
    size = varint_size(last - first)
    for index in range(first, last):
        size += blob_size(header_key_ends, header_key_valid, index)
        size += blob_size(header_value_ends, header_value_valid, index)
    return size


@compiled
def encode_rows(
    rows: Int64s,
    first: int,
    last: int,
    size_limit: int,
    timestamps_ms: Int64s,
    keys: Bytes,
    key_ends: Int32s,
    key_valid: Flags,
    values: Bytes,
    value_ends: Int32s,
    value_valid: Flags,
    header_ends: Int32s,
    header_keys: Bytes,
    header_key_ends: Int32s,
    header_key_valid: Flags,
    header_values: Bytes,
    header_value_ends: Int32s,
    header_value_valid: Flags,
    target: Bytes,
) -> tuple[int, int, int]:
    """Write rows[first:last] as records of one batch, as many as fit, at least one.

    Returns the index of the first row that did not fit, the bytes written and the highest timestamp.
    """
    at = 0
    base_timestamp = timestamps_ms[rows[first]]
    max_timestamp = base_timestamp
    for index in range(first, last):
        row = rows[index]
        timestamp_delta = timestamps_ms[row] - base_timestamp
        size = (
            1
            + varint_size(timestamp_delta)
            + varint_size(index - first)
            + blob_size(key_ends, key_valid, row)
            + blob_size(value_ends, value_valid, row)
            + headers_size(
                row, header_ends, header_key_ends, header_key_valid, header_value_ends, header_value_valid
            )
        )
        if index > first and at + varint_size(size) + size > size_limit:
            return index, at, max_timestamp
        at = write_varint(size, target, at)
        target[at] = 0  # attributes
        at = write_varint(timestamp_delta, target, at + 1)
        at = write_varint(index - first, target, at)
        at = write_blob(keys, key_ends, key_valid, row, target, at)
        at = write_blob(values, value_ends, value_valid, row, target, at)
        if header_ends.size == 0:
            at = write_varint(0, target, at)
        else:
            at = write_varint(header_ends[row + 1] - header_ends[row], target, at)
            for header in range(header_ends[row], header_ends[row + 1]):
                at = write_blob(header_keys, header_key_ends, header_key_valid, header, target, at)
                at = write_blob(header_values, header_value_ends, header_value_valid, header, target, at)
        max_timestamp = max(max_timestamp, timestamps_ms[row])
    return last, at, max_timestamp
