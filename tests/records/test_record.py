"""Records: round trips, batches made by clients, and bytes that nobody vouches for."""

from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record._crecords.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record._crecords.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import CRC_START, DELETE_HORIZON, HEADER_SIZE, BatchHeader, read_header
from odradek.records.compression import Codec
from odradek.records.keys import read_keys
from odradek.records.native import PADDING
from odradek.records.record import (
    Record,
    TimestampType,
    build_batch,
    build_keyed_batch,
    decode_batch,
    header_of,
    patch_crc,
    read_varint,
    read_varlong,
    write_varint,
)

NOW_MS = 1_700_000_000_000
REFUSALS = (
    ErrorCode.INVALID_RECORD,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
)

nullable = st.none() | st.binary(max_size=200)
header_lists = st.lists(st.tuples(st.binary(max_size=20), nullable), max_size=3).map(tuple)
timestamps = st.integers(-1, 2**45)


@st.composite
def record_lists(draw: st.DrawFn, max_gap: int = 1) -> list[Record]:
    rows = draw(st.lists(st.tuples(timestamps, nullable, nullable, header_lists), min_size=1, max_size=40))
    offset, records = draw(st.integers(0, 2**40)), []
    for timestamp, key, value, headers in rows:
        records.append(Record(offset, timestamp, key, value, headers))
        offset += draw(st.integers(1, max_gap))
    return records


@settings(deadline=None, derandomize=True)
@given(
    records=record_lists(max_gap=1000),
    codec=st.sampled_from(list(Codec)),
    producer_id=st.integers(-1, 2**62),
    transactional=st.booleans(),
    control=st.booleans(),
    leader_epoch=st.integers(-1, 2**31 - 1),
)
def test_what_is_built_is_read(
    records: list[Record],
    codec: Codec,
    producer_id: int,
    transactional: bool,
    control: bool,
    leader_epoch: int,
) -> None:
    batch = build_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=3,
        base_sequence=17,
        transactional=transactional,
        control=control,
        leader_epoch=leader_epoch,
    )
    header = header_of(batch)
    assert decode_batch(batch) == records
    assert crc32c(batch[CRC_START:]) == header.crc
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset) == (records[0].offset, records[-1].offset)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert (header.codec, header.is_transactional, header.is_control) == (codec, transactional, control)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer_id, 3, 17)
    assert (header.leader_epoch, header.record_count) == (leader_epoch, len(records))
    assert read_keys(batch, header) == [(r.offset, r.key, r.value is None) for r in records]


@given(
    st.lists(
        st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=9_000)), min_size=1, max_size=4
    ),
    st.integers(0, 2**40),
    st.sampled_from([(-1, -1, False), (7, 3, True), (2**62, 2**15 - 1, True)]),
)
def test_keyed_batches_are_those_that_the_general_code_builds(
    records: list[tuple[bytes, bytes | None]], timestamp: int, producer: tuple[int, int, bool]
) -> None:
    producer_id, epoch, transactional = producer
    batch, header = build_keyed_batch(records, timestamp, producer_id, epoch, transactional=transactional)
    assert batch == build_batch(
        [Record(offset, timestamp, key, value) for offset, (key, value) in enumerate(records)],
        producer_id=producer_id,
        producer_epoch=epoch,
        transactional=transactional,
    )
    assert header == read_header(batch)


def test_log_append_time_is_every_records_time() -> None:
    records = [Record(0, NOW_MS, b"a", b"1"), Record(1, NOW_MS + 5, b"b", b"2")]
    batch = build_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert [record.timestamp for record in decode_batch(batch)] == [NOW_MS + 5, NOW_MS + 5]


def test_a_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    records = [Record(5, NOW_MS, b"a", None)]
    batch = build_batch(records, delete_horizon_ms=NOW_MS + 100, last_offset=9)
    header = header_of(batch)
    assert header.attributes & DELETE_HORIZON
    assert (header.base_timestamp, header.max_timestamp, header.last_offset) == (NOW_MS + 100, NOW_MS, 9)
    assert decode_batch(batch) == records


def test_a_batch_without_records() -> None:
    batch = build_batch([], base_offset=10, last_offset=14, codec=Codec.GZIP)
    assert len(batch) == HEADER_SIZE
    assert decode_batch(batch) == []
    assert header_of(batch).next_offset == 15


def test_a_timestamp_that_does_not_fit_is_refused() -> None:
    with pytest.raises(KafkaError):
        build_batch([Record(0, -(2**63), None, None), Record(1, 2**63 - 1, None, None)])


@settings(deadline=None, derandomize=True)
@given(value=st.integers(-(2**63), 2**63 - 1), before=st.binary(max_size=3))
def test_varlongs(value: int, before: bytes) -> None:
    output = bytearray(before)
    write_varint(output, value)
    assert read_varlong(bytes(output), len(before)) == (value, len(output))
    if -(2**31) <= value < 2**31:
        assert read_varint(bytes(output), len(before)) == (value, len(output))
    else:
        with pytest.raises(KafkaError):
            read_varint(bytes(output), len(before))


@pytest.mark.parametrize("data", [b"\xff" * 11, b"\x80" * 5 + b"\x00", b"\xff\xff\xff\xff\x7f"])
def test_varints_that_are_too_long(data: bytes) -> None:
    with pytest.raises(KafkaError):
        read_varint(data, 0)


# Clients


def client_headers(record: Record) -> list[tuple[str, bytes | None]]:
    return [(key.decode(), value) for key, value in record.headers]


CLIENT_RECORDS = [
    Record(0, NOW_MS, b"key", b"value"),
    Record(1, NOW_MS + 70, None, b"x" * 500, ((b"trace", b"1"), ("Größe".encode(), None))),
    Record(2, NOW_MS - 1000, b"", None),
    Record(3, NOW_MS, b"k" * 100, b""),
]


def aiokafka_batch(codec: int) -> bytes:
    builder = AiokafkaBuilder(2, codec, 1, 123, 4, 5, 1 << 20)
    for record in CLIENT_RECORDS:
        builder.append(record.offset, record.timestamp, record.key, record.value, client_headers(record))
    return bytes(builder.build())


def kafka_python_batch(codec: int) -> bytes:
    builder = KafkaPythonBuilder(2, codec, True, 123, 4, 5, 1 << 20)
    for record in CLIENT_RECORDS:
        builder.append(record.offset, record.timestamp, record.key, record.value, client_headers(record))
    return bytes(builder.build())


@pytest.mark.parametrize(
    ("build", "codec"),
    [(aiokafka_batch, codec) for codec in Codec]
    + [(kafka_python_batch, Codec.NONE), (kafka_python_batch, Codec.GZIP)],
)
def test_batches_of_clients_are_read(build: Callable[[int], bytes], codec: Codec) -> None:
    batch = build(codec)
    header = header_of(batch)
    assert decode_batch(batch) == CLIENT_RECORDS
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (123, 4, 5)
    assert header.is_transactional
    assert header.crc == crc32c(batch[CRC_START:])


@pytest.mark.parametrize(
    ("reader", "codec"),
    [(AiokafkaBatch, codec) for codec in Codec]
    + [(KafkaPythonBatch, Codec.NONE), (KafkaPythonBatch, Codec.GZIP)],
)
def test_clients_read_our_batches(reader: Any, codec: Codec) -> None:
    batch = reader(bytes(build_batch(CLIENT_RECORDS, codec=codec)))
    assert batch.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, [tuple(h) for h in r.headers]) for r in batch] == [
        (r.offset, r.timestamp, r.key, r.value, client_headers(r)) for r in CLIENT_RECORDS
    ]


def test_an_uncompressed_batch_is_byte_for_byte_what_clients_build() -> None:
    ours = build_batch(CLIENT_RECORDS, transactional=True, producer_id=123, producer_epoch=4, base_sequence=5)
    theirs = bytearray(aiokafka_batch(Codec.NONE))
    theirs[12:16] = ours[12:16]  # the leader epoch, which is the broker's to set
    assert ours == theirs


# Strangers


def refused(work: Callable[[], Any]) -> bool:
    try:
        work()
    except KafkaError as error:
        assert error.code in REFUSALS
        return True
    return False


def hostile(change: Callable[[bytearray], None], codec: Codec = Codec.NONE) -> bytearray:
    batch = build_batch(CLIENT_RECORDS, codec=codec)
    change(batch)
    return batch


@pytest.mark.parametrize("codec", list(Codec))
def test_cut_short_at_every_byte(codec: Codec) -> None:
    batch = build_batch(CLIENT_RECORDS, codec=codec)
    for length in range(len(batch)):
        part = batch[:length]
        assert refused(lambda part=part: decode_batch(part))
        if length >= HEADER_SIZE:
            header = read_header(batch)._replace(length=length - 12)
            assert refused(lambda part=part, header=header: decode_batch(part, header))
            assert refused(lambda part=part, header=header: read_keys(part, header))


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 1, 3, 5, 2**31 - 1])
def test_a_count_of_records_that_is_not_true(count: int) -> None:
    def change(batch: bytearray) -> None:
        batch[57:61] = count.to_bytes(4, "big", signed=True)

    assert refused(lambda: decode_batch(hostile(change)))


def test_offsets_must_rise_within_the_batch() -> None:
    records = [Record(0, 0, b"a", b""), Record(0, 0, b"b", b"")]
    assert refused(lambda: decode_batch(build_batch(records)))
    records = [Record(0, 0, b"a", b""), Record(5, 0, b"b", b"")]
    assert refused(lambda: decode_batch(build_batch(records, last_offset=4)))


def test_offsets_must_rise_for_the_native_reader_too() -> None:
    same = build_batch([Record(0, 0, b"k", b"") for _ in range(20)], last_offset=19)
    beyond = build_batch([Record(index, 0, b"k", b"") for index in range(20)], last_offset=18)
    for batch in (same, beyond):
        assert refused(lambda batch=batch: read_keys(batch, header_of(batch)))


def test_bytes_within_a_record_that_are_not_its_own() -> None:
    record = (
        b"\x00\x00\x00\x01\x01\x00" + b"?"
    )  # attributes, deltas, null key and value, no headers; and more
    body = bytearray()
    write_varint(body, len(record))
    batch = build_batch([Record(0, 0, None, None)])[:HEADER_SIZE] + body + record
    header = read_header(batch)._replace(length=len(batch) - 12)
    assert refused(lambda: decode_batch(batch, header))


def test_bytes_behind_the_last_record() -> None:
    batch = build_batch(CLIENT_RECORDS) + b"\x00"
    header = read_header(batch)._replace(length=len(batch) - 12)
    assert refused(lambda: decode_batch(batch, header))


def test_a_million_headers_are_not_believed() -> None:
    record = bytearray(b"\x00\x00\x00\x01\x01")  # attributes, deltas, null key and value
    write_varint(record, 1_000_000)
    body = bytearray()
    write_varint(body, len(record))
    batch = build_batch([Record(0, 0, None, None)])[:HEADER_SIZE] + body + record
    header = read_header(batch)._replace(length=len(batch) - 12)
    assert refused(lambda: decode_batch(batch, header))


def test_a_bomb_in_a_batch() -> None:
    batch = build_batch([Record(0, 0, None, bytes(80 << 20))], codec=Codec.ZSTD)
    with pytest.raises(KafkaError) as error:
        decode_batch(batch)
    assert error.value.code == ErrorCode.MESSAGE_TOO_LARGE


mutations = st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 255)), min_size=1, max_size=6)
MANY_RECORDS = CLIENT_RECORDS + [Record(4 + index, NOW_MS, b"%d" % index, b"v") for index in range(20)]


@settings(max_examples=1500, deadline=None, derandomize=True)
@given(changes=mutations, codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.SNAPPY, Codec.GZIP]))
def test_changed_bytes_are_refused_or_read_but_never_crash(
    changes: list[tuple[int, int]], codec: Codec
) -> None:
    batch = build_batch(MANY_RECORDS, codec=codec)
    for position, value in changes:
        batch[position % len(batch)] = value
    refused(lambda: decode_batch(batch))


@settings(max_examples=1500, deadline=None, derandomize=True)
@given(changes=mutations)
def test_the_native_reader_agrees_with_the_strict_one(changes: list[tuple[int, int]]) -> None:
    """The strict reader may refuse what the native one takes (a length of -2), but never reads it otherwise."""
    batch = build_batch(MANY_RECORDS)
    for position, value in changes:
        batch[HEADER_SIZE + position % (len(batch) - HEADER_SIZE)] = value
    header = header_of(batch)
    try:
        strict = decode_batch(batch, header)
    except KafkaError:
        refused(lambda: read_keys(batch, header))
    else:
        assert read_keys(batch, header) == [(r.offset, r.key, r.value is None) for r in strict]


def test_the_native_reader_is_padded_against_reading_too_far() -> None:
    assert len(PADDING) >= 20 and not any(PADDING)


def test_header_keys_that_are_not_utf8() -> None:
    records = [Record(index, 0, b"k", b"v", ((b"\xff\xfe", b"1"),)) for index in range(20)]
    batch = build_batch(records)
    assert decode_batch(batch) == records
    assert len(read_keys(batch, header_of(batch))) == 20


def test_patching_the_crc() -> None:
    batch = build_batch(CLIENT_RECORDS)
    batch[30] ^= 1
    crc = patch_crc(batch)
    header: BatchHeader = header_of(batch)
    assert header.crc == crc == crc32c(batch[CRC_START:])
