"""Tests of what Produce accepts, changes and refuses. Codes are those of Kafka's LogValidator and ProduceRequest."""

from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import CRC_START, HEADER, HEADER_SIZE, BatchHeader, read_header
from odradek.records.compression import Codec
from odradek.records.record import Record, TimestampType, build_batch, decode_batch, pack_batch, patch_crc
from odradek.records.validation import (
    DEFAULT_MAX_MESSAGE_BYTES,
    DEFAULT_RULES,
    RejectedRecords,
    TopicRules,
    check_batch,
    prepare_batch,
)

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
RECORDS = [Record(index, NOW_MS + index, b"key-%d" % index, b"value" * 10) for index in range(20)]
LOG_APPEND_TIME = TopicRules(message_timestamp_type=TimestampType.LOG_APPEND_TIME)


def batch_of(records: list[Record] = RECORDS, **options: Any) -> memoryview:
    return memoryview(build_batch(records, **options))


def with_header(**fields: Any) -> memoryview:
    """A batch whose header says something else, under a CRC that is right."""
    batch = batch_of()
    header = read_header(batch)._replace(**fields)
    HEADER.pack_into(batch, 0, *header)
    patch_crc(batch)
    return batch


def code_of(work: Callable[[], Any]) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        work()
    return error.value.code


# The header


def test_a_good_batch_passes_as_it_is() -> None:
    batch = batch_of(producer_id=5, producer_epoch=0, base_sequence=10, transactional=True)
    before = bytes(batch)
    header = check_batch(batch)
    assert header == read_header(batch)
    assert header.is_transactional
    prepared, same_header = prepare_batch(batch, header, DEFAULT_RULES, NOW_MS)
    assert prepared is batch and same_header is header
    assert bytes(batch) == before


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"base_offset": 1}, ErrorCode.INVALID_RECORD),
        ({"record_count": 0}, ErrorCode.INVALID_RECORD),
        ({"record_count": -1}, ErrorCode.INVALID_RECORD),
        ({"record_count": 21}, ErrorCode.INVALID_RECORD),
        ({"record_count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 20}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x20}, ErrorCode.INVALID_RECORD),  # control
        ({"attributes": 0x10}, ErrorCode.INVALID_RECORD),  # transactional without a producer
        ({"producer_id": 5, "producer_epoch": 0, "base_sequence": -1}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 5, "producer_epoch": -1, "base_sequence": 0}, ErrorCode.INVALID_RECORD),
        ({"producer_id": -2}, ErrorCode.INVALID_RECORD),
        ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 7}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"magic": 0}, ErrorCode.INVALID_RECORD),
        ({"magic": 1}, ErrorCode.INVALID_RECORD),
        ({"magic": 3}, ErrorCode.CORRUPT_MESSAGE),
        ({"magic": -1}, ErrorCode.CORRUPT_MESSAGE),
        ({"length": 0}, ErrorCode.CORRUPT_MESSAGE),
        ({"length": -1}, ErrorCode.CORRUPT_MESSAGE),
        ({"length": 20}, ErrorCode.CORRUPT_MESSAGE),  # too short for a header of format v2
        ({"length": 2**31 - 1}, ErrorCode.INVALID_RECORD),
    ],
)
def test_headers_that_are_refused(fields: dict[str, int], code: ErrorCode) -> None:
    assert code_of(lambda: check_batch(with_header(**fields))) == code


def test_two_batches_or_something_behind_one() -> None:
    two = memoryview(bytearray(batch_of()) + bytearray(batch_of()))
    assert code_of(lambda: check_batch(two)) == ErrorCode.INVALID_RECORD
    more = memoryview(bytearray(batch_of()) + b"\0")
    assert code_of(lambda: check_batch(more)) == ErrorCode.INVALID_RECORD


def test_no_batch_at_all() -> None:
    assert code_of(lambda: check_batch(memoryview(b""))) == ErrorCode.INVALID_RECORD


def test_cut_short_at_every_byte() -> None:
    batch = batch_of()
    for length in range(len(batch)):
        assert code_of(lambda length=length: check_batch(batch[:length])) == ErrorCode.INVALID_RECORD


def test_every_bit_that_the_crc_covers() -> None:
    batch = batch_of(RECORDS[:2])
    for position in range(CRC_START - 4, len(batch)):
        batch[position] ^= 0x10
        assert code_of(lambda: check_batch(batch)) in (
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )
        batch[position] ^= 0x10
    check_batch(batch)


def test_the_size_limit_is_on_the_whole_batch() -> None:
    batch = batch_of()
    check_batch(batch, len(batch))
    assert code_of(lambda: check_batch(batch, len(batch) - 1)) == ErrorCode.MESSAGE_TOO_LARGE


def test_zstd_came_with_version_7() -> None:
    batch = batch_of(codec=Codec.ZSTD)
    check_batch(batch, DEFAULT_MAX_MESSAGE_BYTES, 7)
    refusal = code_of(lambda: check_batch(batch, DEFAULT_MAX_MESSAGE_BYTES, 6))
    assert refusal == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    check_batch(batch_of(codec=Codec.LZ4), DEFAULT_MAX_MESSAGE_BYTES, 3)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_refused_or_a_batch(data: bytes) -> None:
    try:
        check_batch(memoryview(data))
    except KafkaError:
        pass


# Timestamps


def prepared(batch: memoryview, rules: TopicRules, now_ms: int = NOW_MS) -> tuple[memoryview, BatchHeader]:
    result = prepare_batch(batch, check_batch(batch), rules, now_ms)
    assert result[1] == read_header(result[0])
    assert crc32c(result[0][CRC_START:]) == result[1].crc
    return result


def test_log_append_time_is_written_over_the_batch_in_place() -> None:
    batch = batch_of()
    result, header = prepared(batch, LOG_APPEND_TIME, NOW_MS + 77)
    assert result is batch
    assert header.max_timestamp == NOW_MS + 77
    assert {record.timestamp for record in decode_batch(batch)} == {NOW_MS + 77}
    assert [record.value for record in decode_batch(batch)] == [record.value for record in RECORDS]


@pytest.mark.parametrize("rules", [DEFAULT_RULES, LOG_APPEND_TIME])
def test_producers_may_not_claim_log_append_time(rules: TopicRules) -> None:
    batch = batch_of(timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert code_of(lambda: prepared(batch, rules)) == ErrorCode.INVALID_TIMESTAMP


def test_too_far_in_the_future_is_seen_in_the_header() -> None:
    latest = NOW_MS + 19
    prepared(batch_of(), DEFAULT_RULES, latest - HOUR_MS)
    refusal = code_of(lambda: prepared(batch_of(), DEFAULT_RULES, latest - HOUR_MS - 1))
    assert refusal == ErrorCode.INVALID_TIMESTAMP


def test_too_old_is_looked_up_in_every_record() -> None:
    rules = TopicRules(timestamp_before_max_ms=1000)
    records = [Record(0, NOW_MS, b"", b""), Record(1, NOW_MS - 1000, b"", b""), Record(2, NOW_MS, b"", b"")]
    prepared(batch_of(records), rules, NOW_MS)
    with pytest.raises(RejectedRecords) as error:
        prepared(batch_of(records), rules, NOW_MS + 1)
    assert error.value.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.value.record_errors] == [1]


def test_limits_do_not_hold_for_log_append_time_or_no_timestamp() -> None:
    rules = TopicRules(timestamp_before_max_ms=1000, timestamp_after_max_ms=1000)
    prepared(batch_of([Record(0, -1, b"", b"")]), rules)
    rules = TopicRules(TimestampType.LOG_APPEND_TIME, timestamp_before_max_ms=0, timestamp_after_max_ms=0)
    prepared(batch_of([Record(0, 5, b"", b"")]), rules)


# Records


def test_a_compacted_topic_needs_keys() -> None:
    rules = TopicRules(compact=True)
    batch = batch_of()
    assert prepared(batch, rules)[0] is batch
    records = [Record(0, NOW_MS, b"a", b""), Record(1, NOW_MS, None, b""), Record(2, NOW_MS, b"", b"")]
    for codec in Codec:
        with pytest.raises(RejectedRecords) as error:
            prepared(batch_of(records, codec=codec), rules)
        assert error.value.code == ErrorCode.INVALID_RECORD
        assert [index for index, _ in error.value.record_errors] == [1]


def test_a_bad_timestamp_outweighs_a_missing_key() -> None:
    rules = TopicRules(compact=True, timestamp_before_max_ms=1000)
    records = [Record(0, NOW_MS, None, b""), Record(1, NOW_MS - 2000, b"k", b"")]
    with pytest.raises(RejectedRecords) as error:
        prepared(batch_of(records), rules)
    assert error.value.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.value.record_errors] == [0, 1]


def malformed() -> memoryview:
    batch = batch_of()
    batch[HEADER_SIZE] = 0x7E
    patch_crc(batch)
    return batch


def test_records_are_looked_at_only_where_a_rule_asks() -> None:
    prepared(malformed(), DEFAULT_RULES)
    prepared(malformed(), LOG_APPEND_TIME)
    for rules in (
        TopicRules(full_validation=True),
        TopicRules(compact=True),
        TopicRules(timestamp_before_max_ms=10),
        TopicRules(compression_type=Codec.GZIP),
    ):
        assert code_of(lambda rules=rules: prepared(malformed(), rules)) == ErrorCode.INVALID_RECORD


def test_offset_deltas_count_up() -> None:
    batch = build_batch([Record(0, NOW_MS, b"a", b""), Record(2, NOW_MS, b"b", b"")])
    header = read_header(batch)._replace(last_offset_delta=1)
    HEADER.pack_into(batch, 0, *header)
    patch_crc(batch)
    rules = TopicRules(full_validation=True)
    assert code_of(lambda: prepared(memoryview(batch), rules)) == ErrorCode.INVALID_RECORD


def test_full_validation_corrects_the_latest_timestamp() -> None:
    batch = with_header(max_timestamp=NOW_MS - 5)
    _, header = prepared(batch, TopicRules(full_validation=True))
    assert header.max_timestamp == NOW_MS + 19
    assert decode_batch(batch) == RECORDS


def test_damaged_compression() -> None:
    header = read_header(batch_of())
    batch = memoryview(pack_batch(header, b"this is not gzip"))
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(attributes=Codec.GZIP))
    patch_crc(batch)
    rules = TopicRules(full_validation=True)
    assert code_of(lambda: prepared(batch, rules)) == ErrorCode.CORRUPT_MESSAGE


# Compression


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("wanted", list(Codec))
def test_the_topics_compression(source: Codec, wanted: Codec) -> None:
    records = [record._replace(headers=((b"h", b"1"),)) for record in RECORDS]
    batch = batch_of(
        records, codec=source, producer_id=9, producer_epoch=2, base_sequence=30, transactional=True
    )
    original = check_batch(batch)
    result, header = prepared(batch, TopicRules(compression_type=wanted))
    assert (result is batch) == (source == wanted)
    assert header.codec == wanted
    assert decode_batch(result) == records
    changeable = {"attributes": 0, "length": 0, "crc": 0}
    assert header._replace(**changeable) == original._replace(**changeable)
    assert header.is_transactional
    patched, _ = prepare_batch(result, header, DEFAULT_RULES, NOW_MS)
    patched[0:8] = (1000).to_bytes(8, "big")  # the log writes the base offset into it
    assert decode_batch(patched)[0].offset == 1000


def test_recompression_with_log_append_time() -> None:
    rules = TopicRules(TimestampType.LOG_APPEND_TIME, compression_type=Codec.ZSTD, compression_level=19)
    result, header = prepared(batch_of(), rules, NOW_MS + 1)
    assert header.codec == Codec.ZSTD
    assert {record.timestamp for record in decode_batch(result)} == {NOW_MS + 1}


def test_unfolding_beyond_the_size_limit() -> None:
    records = [Record(0, NOW_MS, b"k", bytes(10_000))]
    batch = batch_of(records, codec=Codec.GZIP)
    rules = TopicRules(compression_type=Codec.NONE, max_message_bytes=5000)
    refusal = code_of(lambda: prepare_batch(batch, check_batch(batch, 5000), rules, NOW_MS))
    assert refusal == ErrorCode.MESSAGE_TOO_LARGE


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    changes=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=4),
    codec=st.sampled_from(list(Codec)),
)
def test_changed_bytes_under_a_right_crc(changes: list[tuple[int, int]], codec: Codec) -> None:
    """Refused, or stored as something that can be read."""
    batch = batch_of(codec=codec)
    for position, value in changes:
        batch[CRC_START + position % (len(batch) - CRC_START)] = value
    patch_crc(batch)
    rules = TopicRules(full_validation=True, compact=True, compression_type=Codec.LZ4)
    try:
        result, header = prepare_batch(batch, check_batch(batch), rules, NOW_MS)
    except KafkaError:
        return
    assert len(decode_batch(result, header)) == header.record_count


# Timestamps that no clock shows


def test_a_base_timestamp_in_the_far_future_is_refused_though_the_header_shows_a_near_one() -> None:
    batch = with_header(base_timestamp=2**63 - 1)
    header = check_batch(batch)
    assert header.max_timestamp < NOW_MS + HOUR_MS
    assert code_of(lambda: prepare_batch(batch, header, DEFAULT_RULES, NOW_MS)) == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("base_timestamp", [2**63 - 1, -(2**63)])
def test_a_timestamp_beyond_int64_is_refused_where_records_are_looked_at(base_timestamp: int) -> None:
    batch = batch_of([Record(0, 5, b"key", b"x"), Record(1, 9, b"key", b"x"), Record(2, 1, b"key", b"x")])
    header = read_header(batch)._replace(base_timestamp=base_timestamp)
    HEADER.pack_into(batch, 0, *header)
    patch_crc(batch)
    rules = TopicRules(compact=True, timestamp_after_max_ms=2**63 - 1)
    header = check_batch(batch)
    assert code_of(lambda: prepare_batch(batch, header, rules, NOW_MS)) == ErrorCode.INVALID_TIMESTAMP
