"""Finding offsets by time, against reading all records."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.records.batch import HEADER, HEADER_SIZE, read_header
from odradek.records.compression import Codec
from odradek.records.record import TimestampType, decode_batch, patch_crc
from odradek.storage.config import LogConfig
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.log.lookup import offset_for_timestamp, offset_of_max_timestamp
from tests.storage.batches import NOW_MS, append, append_values, make_batch, new_log

D = "/data/topic-0"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), max_size=30),
    st.integers(0, 20),
    st.integers(0, 120),
)
def test_the_first_record_that_is_not_earlier(batches: list[list[int]], start: int, upper: int) -> None:
    log = new_log(SimulatedFiles(), D, LogConfig(segment_bytes=600, index_interval_bytes=100))
    records = []
    for times in batches:
        base = append(log, make_batch([b"x"] * len(times), timestamps=times)).base_offset
        records += [(time, base + slot) for slot, time in enumerate(times)]
    log.delete_records_before(min(start, log.end_offset))
    visible = [record for record in records if record[1] >= log.log_start_offset]
    for target in range(52):
        expected = next((record for record in visible if record[0] >= target), None)
        if expected is not None and expected[1] >= upper:
            expected = None
        found = offset_for_timestamp(log, target, upper)
        assert (found and found[:2]) == expected


def test_compressed_batches_are_looked_into() -> None:
    log = new_log(SimulatedFiles(), D)
    append(log, make_batch([b"a", b"b", b"c"], timestamps=[10, 20, 30], codec=Codec.GZIP), epoch=4)
    assert offset_for_timestamp(log, 15, 3) == (20, 1, 4)
    assert offset_of_max_timestamp(log) == (30, 2, 4)


def test_append_time_is_the_batchs() -> None:
    log = new_log(SimulatedFiles(), D)
    batch = make_batch([b"a", b"b"], timestamps=[10, 20], timestamp_type=TimestampType.LOG_APPEND_TIME)
    append(log, batch)
    assert offset_for_timestamp(log, 15, 2) == (20, 0, 0)
    assert offset_of_max_timestamp(log) == (20, 1, 0)


def test_the_largest_timestamp_is_the_first_of_its_kind() -> None:
    log = new_log(SimulatedFiles(), D, LogConfig(segment_bytes=200))
    assert offset_of_max_timestamp(log) is None
    for timestamp in (10, 99, 50, 99, 70):
        append_values(log, b"x", b"y", timestamp=timestamp)
    assert offset_of_max_timestamp(log) == (99, 2, 0)


@pytest.mark.parametrize("cut", range(1, 10))
def test_the_largest_timestamp_after_a_cut(cut: int) -> None:
    log = new_log(SimulatedFiles(), D, LogConfig(index_interval_bytes=100))
    times = [NOW_MS + (number * 7) % 10 for number in range(10)]
    for timestamp in times:
        append_values(log, b"x" * 30, timestamp=timestamp)
    log.truncate_to(cut)
    largest = max(times[:cut])
    assert offset_of_max_timestamp(log) == (largest, times.index(largest), 0)


def rewritten(batch: bytearray, **changes: int) -> bytearray:
    """The batch with other values in its header, and a CRC that fits them."""
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(**changes))
    patch_crc(memoryview(batch))
    return batch


STRANGE_BATCHES = {
    "the sum overflows": rewritten(make_batch([b"x", b"y"], timestamps=[5, 9]), base_timestamp=2**63 - 1),
    "the sum underflows": rewritten(make_batch([b"x", b"y"], timestamps=[9, 5]), base_timestamp=-(2**63)),
    "the largest timestamp lies": rewritten(make_batch([b"x", b"y"], timestamps=[5, 9]), max_timestamp=2**62),
    "its records are unreadable": rewritten(make_batch([b"x", b"y"], timestamps=[5, 9]), attributes=1),
    "a record is missing": rewritten(make_batch([b"x", b"y"], timestamps=[5, 9]), record_count=1),
    "it is empty": rewritten(
        make_batch([b"x", b"y"], timestamps=[5, 9])[:HEADER_SIZE], record_count=0, length=49
    ),
}


@pytest.mark.parametrize("name", STRANGE_BATCHES)
def test_whatever_is_in_the_log_gets_a_response(name: str) -> None:
    log = new_log(SimulatedFiles(), D, LogConfig(index_interval_bytes=0))
    append(log, make_batch([b"before"], timestamps=[3]))
    append(log, bytearray(STRANGE_BATCHES[name]))
    append(log, make_batch([b"behind"], timestamps=[20]))
    for target in (-(2**63), -1, 0, 3, 5, 9, 10, 2**62, 2**63 - 1):
        found = offset_for_timestamp(log, target, log.end_offset)
        assert found is None or (0 <= found.offset < log.end_offset and -(2**63) <= found.timestamp < 2**63)
    found = offset_of_max_timestamp(log)
    assert found is not None
    assert 0 <= found.offset < log.end_offset
    assert -(2**63) <= found.timestamp < 2**63


def test_records_that_cannot_be_read_are_found_at_the_start_of_their_batch() -> None:
    log = new_log(SimulatedFiles(), D, LogConfig())
    append(log, make_batch([b"before"], timestamps=[3]))
    append(log, bytearray(STRANGE_BATCHES["its records are unreadable"]))
    assert offset_for_timestamp(log, 4, log.end_offset) == (9, 1, 0)


def test_a_timestamp_that_overflows_is_what_java_makes_of_it() -> None:
    batch = bytearray(STRANGE_BATCHES["the sum overflows"])
    assert [record.timestamp for record in decode_batch(batch)] == [2**63 - 1, -(2**63) + 3]
