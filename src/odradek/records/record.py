"""The records inside a batch: reading them from untrusted bytes, and building batches.

The hot path does not use this. These do: validation of compacted topics, recompression, compaction, the
coordinators (which keep their state as records) and tests.

    length            varint     of the rest
    attributes        int8       unused
    timestamp delta   varlong    to the batch's base timestamp
    offset delta      varint     to the batch's base offset
    key               varint length (-1: null), bytes
    value             varint length (-1: null), bytes
    headers           varint count, each a key (never null) and a value, both like the above

Reading is strict: lengths must match exactly, offsets must rise and stay within the range in the batch's header,
and the number of records must be the header's. Anything else is INVALID_RECORD. Header keys stay bytes: they
should be UTF-8, but a broker stores them unchecked.

aiokafka's native reader is eight times faster, but it reads past the end of its buffer on a truncated varint
and takes 120 ms to import: it may read only padded buffers, and is used only if there is that much work
(compaction).
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import repeat
from struct import Struct
from typing import NamedTuple

from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import (
    BEFORE_CRC,
    CODEC_MASK,
    CONTROL,
    COVERED,
    CRC_OFFSET,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    read_header,
)
from odradek.records.compression import Codec, compress, decompress
from odradek.records.crc import crc32c

# The largest size of a decompressed batch. Kafka has no such limit; its own clients stay far below.
MAX_UNCOMPRESSED_BYTES = 64 * 1024 * 1024

NO_LEADER_EPOCH = -1
NO_PRODUCER_EPOCH = -1

INT32_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
FAR_TIMESTAMP = 2**62  # beyond this, the sum of a base timestamp and a delta may overflow

Headers = tuple[tuple[bytes, bytes | None], ...]

_CRC = Struct(">I")
NULL_SIZE = b"\x01"  # -1, of a key or a value


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


# A record, and where its bytes are in the uncompressed records of its batch:
# start, end, timestamp delta, offset delta, key, value, headers.
RecordSpan = tuple[int, int, int, int, bytes | None, bytes | None, Headers]


def invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, reason)


# Reading


def decode_batch(
    buffer: Buffer, header: BatchHeader | None = None, *, limit: int = MAX_UNCOMPRESSED_BYTES
) -> list[Record]:
    """The records of the batch that `buffer` opens with; the CRC is the caller's to check."""
    if header is None:
        header = header_of(buffer)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    records = [
        Record(
            base_offset + offset_delta,
            base_timestamp + timestamp_delta if append_time is None else append_time,
            key,
            value,
            headers,
        )
        for _, _, timestamp_delta, offset_delta, key, value, headers in scan_records(
            uncompressed_records(buffer, header, limit=limit), header
        )
    ]
    if -FAR_TIMESTAMP < base_timestamp < FAR_TIMESTAMP:
        return records
    return [record._replace(timestamp=wrap_int64(record.timestamp)) for record in records]


def wrap_int64(value: int) -> int:
    """Returns what Kafka computes if the sum of base timestamp and delta is not an int64: Java's addition overflows."""
    return (value + INT64_MAX + 1) % (1 << 64) - INT64_MAX - 1


def header_of(buffer: Buffer) -> BatchHeader:
    """The header of a batch that may be cut short or of another format."""
    if len(buffer) < HEADER_SIZE:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{len(buffer)} bytes are too few for a record batch")
    header = read_header(buffer)
    if header.magic != MAGIC or not HEADER_SIZE <= header.size <= len(buffer):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"Not a record batch: format {header.magic}, {header.size} bytes"
        )
    return header


def uncompressed_records(
    buffer: Buffer, header: BatchHeader, *, limit: int = MAX_UNCOMPRESSED_BYTES
) -> bytes:
    """The part after the header, decompressed. A copy: indexing bytes is faster than indexing a view."""
    with memoryview(buffer)[HEADER_SIZE : header.size] as payload:
        if header.record_count == 0 and not payload:
            return (
                b""  # compaction leaves such batches, and an empty compressed stream has more than zero bytes
            )
        return bytes(decompress(header.attributes & CODEC_MASK, payload, limit))


def scan_records(data: bytes, header: BatchHeader) -> Iterator[RecordSpan]:
    """Every record in `data`, the uncompressed records of the batch, which must end with the last one."""
    position, previous_delta, last_delta = 0, -1, header.last_offset_delta
    for _ in repeat(None, header.record_count):
        try:
            span = read_record(data, position)
        except IndexError:
            raise invalid("A record extends beyond the end of its batch") from None
        position, offset_delta = span[1], span[3]
        if not previous_delta < offset_delta <= last_delta:
            raise invalid(f"Offset delta {offset_delta} after {previous_delta}, of at most {last_delta}")
        previous_delta = offset_delta
        yield span
    if position != len(data):
        raise invalid(f"{len(data) - position} bytes follow the last of {header.record_count} records")


def read_record(data: bytes, start: int) -> RecordSpan:
    """Raises IndexError if the bytes end too early.

    Lengths are not checked one by one: one that is too large moves `position` past the record's end, which
    the last check notices.
    """
    length, position = read_varint(data, start)
    end = position + length
    timestamp_delta, position = read_varlong(data, position + 1)  # after the attributes
    offset_delta, position = read_varint(data, position)
    key, position = read_nullable(data, position)
    value, position = read_nullable(data, position)
    header_count, position = read_varint(data, position)
    headers, position = read_headers(data, position, header_count) if header_count else ((), position)
    if position != end:
        raise invalid(f"A record of {length} bytes ends at {position} instead of {end}")
    return start, end, timestamp_delta, offset_delta, key, value, headers


def read_nullable(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length >= 0:
        return data[position : position + length], position + length
    if length == -1:
        return None, position
    raise invalid(f"Length {length} of a key or value")


def read_headers(data: bytes, position: int, count: int) -> tuple[Headers, int]:
    if not 0 <= count <= len(data) - position:
        raise invalid(f"{count} record headers")
    headers = []
    for _ in repeat(None, count):
        key, position = read_nullable(data, position)
        if key is None:
            raise invalid("A record header without a key")
        value, position = read_nullable(data, position)
        headers.append((key, value))
    return tuple(headers), position


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag int32 of at most five bytes. Nearly all take one or two."""
    first = data[position]
    if first < 0x80:
        return (first >> 1) ^ -(first & 1), position + 1
    second = data[position + 1]
    if second < 0x80:
        value = first & 0x7F | second << 7
        return (value >> 1) ^ -(value & 1), position + 2
    value, position = _read_zigzag(data, position, 5)
    if not -INT32_MAX - 1 <= value <= INT32_MAX:
        raise invalid(f"Varint {value} is not an int32")
    return value, position


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag int64 of at most ten bytes."""
    first = data[position]
    if first < 0x80:
        return (first >> 1) ^ -(first & 1), position + 1
    value, position = _read_zigzag(data, position, 10)
    if not INT64_MIN <= value <= INT64_MAX:
        raise invalid(f"Varlong {value} is not an int64")
    return value, position


def _read_zigzag(data: bytes, position: int, max_bytes: int) -> tuple[int, int]:
    value = 0
    for index in range(max_bytes):
        byte = data[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + index + 1
    raise invalid(f"A varint of more than {max_bytes} bytes")


# Writing


def build_batch(
    records: Sequence[Record],
    *,
    codec: int = Codec.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    control: bool = False,
    transactional: bool = False,
    base_offset: int | None = None,
    last_offset: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """A batch of `records`, whose offsets must rise from `base_offset` (the first record's, if not given).

    `last_offset` may be after the last record, as compaction leaves it. A delete horizon replaces
    the base timestamp, so that timestamp deltas are relative to it.
    """
    assert records or (base_offset is not None and last_offset is not None), "an empty batch needs its range"
    first = records[0].offset if base_offset is None else base_offset
    last = records[-1].offset if last_offset is None else last_offset
    attributes = (
        codec
        | (LOG_APPEND_TIME if timestamp_type else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
        | (0 if delete_horizon_ms is None else DELETE_HORIZON)
    )
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    header = BatchHeader(
        base_offset=first,
        length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last - first,
        base_timestamp=base_timestamp,
        max_timestamp=max([record.timestamp for record in records], default=NO_TIMESTAMP),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return pack_batch(header, encode_records(records, first, base_timestamp), level=level)


def build_keyed_batch(
    records: Sequence[tuple[bytes, bytes | None]],
    timestamp: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    *,
    transactional: bool = False,
) -> tuple[bytearray, BatchHeader]:
    """The batch that `build_batch` would build of keys and values with the same time, and its header: for coordinators,
    which write one for every step of a transaction."""
    attributes = TRANSACTIONAL if transactional else 0
    count = len(records)
    fields = attributes, count - 1, timestamp, timestamp, producer_id, producer_epoch, NO_SEQUENCE, count
    covered = COVERED.pack(*fields) + b"".join(
        [_encode_keyed(delta, key, value) for delta, (key, value) in enumerate(records)]
    )
    length = CRC_START - LENGTH_END + len(covered)
    header = BatchHeader(0, length, NO_LEADER_EPOCH, MAGIC, crc32c(covered), *fields)
    return bytearray(BEFORE_CRC.pack(*header[:5]) + covered), header


def _encode_keyed(offset_delta: int, key: bytes, value: bytes | None) -> bytes:
    rest = NULL_SIZE if value is None else varint(len(value)) + value
    body = b"\0\0" + varint(offset_delta) + varint(len(key)) + key + rest + b"\0"
    return varint(len(body)) + body


def pack_batch(header: BatchHeader, records: Buffer, *, level: int | None = None) -> bytearray:
    """`header` in front of `records`, which are compressed as it says; its length and CRC are filled in."""
    payload = compress(header.attributes & CODEC_MASK, records, level) if records else b""
    return pack_compressed(header, payload)


def pack_compressed(header: BatchHeader, payload: Buffer) -> bytearray:
    """Like `pack_batch`, for records that are compressed already."""
    batch = bytearray(HEADER_SIZE)
    batch += payload
    length = len(batch) - LENGTH_END
    HEADER.pack_into(batch, 0, header.base_offset, length, *header[2:])
    patch_crc(batch)
    return batch


def patch_crc(batch: bytearray | memoryview) -> int:
    """Correct the CRC after a change to the bytes it covers."""
    with memoryview(batch) as view:
        crc: int = crc32c(view[CRC_START:])
    _CRC.pack_into(batch, CRC_OFFSET, crc)
    return crc


def encode_records(records: Sequence[Record], base_offset: int, base_timestamp: int) -> bytearray:
    output = bytearray()
    for record in records:
        body = bytearray(1)
        write_varint(body, _within_int64(record.timestamp - base_timestamp))
        write_varint(body, record.offset - base_offset)
        write_nullable(body, record.key)
        write_nullable(body, record.value)
        write_varint(body, len(record.headers))
        for key, value in record.headers:
            write_nullable(body, key)
            write_nullable(body, value)
        write_varint(output, len(body))
        output += body
    return output


def _within_int64(timestamp_delta: int) -> int:
    if not INT64_MIN <= timestamp_delta <= INT64_MAX:
        raise invalid(f"Timestamp delta {timestamp_delta} is not an int64")
    return timestamp_delta


def write_nullable(output: bytearray, data: bytes | None) -> None:
    if data is None:
        output += NULL_SIZE
    else:
        write_varint(output, len(data))
        output += data


def write_varint(output: bytearray, value: int) -> None:
    """Zigzag, for int32 and int64 alike."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value >= 0x80:
        output.append(value & 0x7F | 0x80)
        value >>= 7
    output.append(value)


@lru_cache(1024)
def varint(value: int) -> bytes:
    output = bytearray()
    write_varint(output, value)
    return bytes(output)
