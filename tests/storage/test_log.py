"""Appending to a log, reading it, syncing it, rolling and cutting it."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import read_header
from odradek.records.control import build_marker_batch
from odradek.storage.config import LogConfig
from odradek.storage.disk.files import DiskFiles
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.disk.sync import sync_tickets
from odradek.storage.log.log import Log
from odradek.storage.log.retention import delete_old_segments
from tests.storage.batches import (
    NOW_MS,
    append,
    append_values,
    batches_of,
    cut_power_within,
    durable_disk,
    make_batch,
    new_log,
    reopen,
    values_of,
)

D = "/data/topic-0"


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def code_of(call: object) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        call()  # type: ignore[operator]
    return raised.value.code


def marker_batch(*, commit: bool, producer_id: int = 7) -> bytearray:
    return build_marker_batch(
        commit=commit, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp=NOW_MS
    )


# Appending and reading


def test_offsets_and_epochs_are_written_into_the_batches(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    first = append_values(log, b"a", b"b", epoch=3)
    second = append_values(log, b"c", epoch=4)
    assert (first.base_offset, first.last_offset, second.base_offset) == (0, 1, 2)
    assert [(header.base_offset, header.leader_epoch) for header, _ in batches_of(log)] == [(0, 3), (2, 4)]
    assert values_of(log) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert log.leader_epochs.entries == [(3, 0), (4, 2)]


def test_the_file_holds_the_batches_as_they_came(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    batch = make_batch([b"a"])
    append(log, batch)
    assert files.read(f"{D}/00000000000000000000.log") == bytes(batch)


def test_reading_starts_at_the_batch_that_holds_the_offset(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    sizes = []
    for _ in range(4):
        batch = make_batch([b"x"] * 3)
        append(log, batch)
        sizes.append(len(batch))
    size = sizes[0]
    assert log.read(4, 10_000, 12) == (log.active.log, size, 3 * size)
    assert log.read(5, 10_000, 9) == (log.active.log, size, 2 * size)
    assert log.read(5, 10_000, 8) == (log.active.log, size, size)  # the batch that holds 8 is not yet allowed
    assert log.read(5, 10_000, 5) is None
    assert log.read(12, 10_000, 12) is None


def test_the_first_batch_comes_whole_if_asked_for(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    for _ in range(3):
        append_values(log, b"x" * 100)
    size = log.active.size // 3
    assert log.read(1, 10, 3) == (log.active.log, size, size)
    assert log.read(1, 10, 3, minimum_one=False) == (log.active.log, size, 10)
    assert log.read(1, size + 5, 3) == (log.active.log, size, size + 5)


def test_reading_outside_of_the_log_is_an_error(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    append_values(log, b"a", b"b")
    log.delete_records_before(1)
    assert code_of(lambda: log.read(0, 100, 2)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert code_of(lambda: log.read(3, 100, 2)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(1, 100, 2) is not None


def test_every_offset_is_found_through_tail_and_index(files: SimulatedFiles) -> None:
    log = new_log(files, D, LogConfig(segment_bytes=40_000, index_interval_bytes=300))
    for number in range(3000):
        append_values(log, b"%d" % number, b"x" * (number % 7))
    assert len(log.segments) > 3
    position_of = {}
    for header, data in batches_of(log):
        for offset in range(header.base_offset, header.next_offset):
            position_of[offset] = data
    for offset in [*range(0, 6000, 7), 5999]:
        part = log.read(offset, 1, log.end_offset)
        assert part is not None
        assert part.file.read_at(part.position, part.length) == position_of[offset]
        upper = log.read(0, 10**9, offset) if offset else None
        if upper is not None:
            last = read_header(position_of[min(offset, log.segments[1].base_offset) - 1])
            assert last.base_offset <= offset


def test_an_upper_offset_within_an_inactive_segment(files: SimulatedFiles) -> None:
    log = new_log(files, D, LogConfig(segment_bytes=1000))
    for _ in range(50):
        append_values(log, b"x" * 50)
    size = len(make_batch([b"x" * 50]))
    assert log.read(2, 10_000, 5) == (log.segments[0].log, 2 * size, 3 * size)
    assert log.read(2, 10_000, 50) == (log.segments[0].log, 2 * size, log.segments[0].size - 2 * size)


# Following


def test_a_follower_keeps_the_leaders_offsets_and_gaps(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    leader = b"".join(
        make_batch(values, base_offset=offset, leader_epoch=epoch)
        for values, offset, epoch in (([b"a", b"b"], 0, 1), ([b"c"], 10, 1), ([b"d"], 11, 2))
    )
    assert log.append_as_follower(leader + leader[:30], NOW_MS) == len(leader)
    assert values_of(log) == [(0, b"a"), (1, b"b"), (10, b"c"), (11, b"d")]
    assert log.end_offset == 12
    assert log.leader_epochs.entries == [(1, 0), (2, 11)]
    part = log.read(5, 1, 12)
    assert part is not None
    assert read_header(part.file.read_at(part.position, part.length)).base_offset == 10


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda batch: batch.__setitem__(70, batch[70] ^ 1), ErrorCode.CORRUPT_MESSAGE),
        (lambda batch: batch.__setitem__(16, 1), ErrorCode.CORRUPT_MESSAGE),
        (lambda batch: batch.__setitem__(7, 0), ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_a_follower_takes_what_comes_before_damage_and_refuses_the_rest(
    files: SimulatedFiles, damage: object, code: ErrorCode
) -> None:
    log = new_log(files, D)
    good, bad = make_batch([b"good"]), make_batch([b"bad"], base_offset=1)
    damage(bad)  # type: ignore[operator]
    assert log.append_as_follower(bytes(good + bad), NOW_MS) == len(good)
    assert log.end_offset == 1
    assert code_of(lambda: log.append_as_follower(bytes(bad), NOW_MS)) is code
    assert log.end_offset == 1


def test_a_follower_rolls_within_one_fetch(files: SimulatedFiles) -> None:
    log = new_log(files, D, LogConfig(segment_bytes=1000))
    fetched = b"".join(make_batch([b"x" * 300], base_offset=offset) for offset in range(10))
    log.append_as_follower(fetched, NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]
    assert len(values_of(log)) == 10


def test_a_jump_beyond_32_bits_begins_a_new_segment(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    far = 2**31 + 5
    log.append_as_follower(make_batch([b"a"]) + make_batch([b"b"], base_offset=far), NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, far]
    assert values_of(log) == [(0, b"a"), (far, b"b")]


# Producers


def test_a_repeated_batch_is_answered_with_its_first_offset(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    for sequence in (0, 2):
        append(log, make_batch([b"a", b"b"], producer_id=7, producer_epoch=0, base_sequence=sequence))
    size = log.active.size
    again = append(log, make_batch([b"a", b"b"], producer_id=7, producer_epoch=0, base_sequence=0))
    assert again == (0, 1, True, NOW_MS)
    assert (log.end_offset, log.active.size) == (4, size)
    gap = make_batch([b"c"], producer_id=7, producer_epoch=0, base_sequence=9)
    assert code_of(lambda: append(log, gap)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (log.end_offset, log.active.size) == (4, size)


def test_an_aborted_transaction_is_indexed(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    append_values(log, b"plain")
    transactional = make_batch([b"x"], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    append(log, transactional)
    assert log.last_stable_offset(2) == 1
    append(log, marker_batch(commit=False), check_sequence=False)
    assert log.last_stable_offset(2) == 1
    assert log.last_stable_offset(3) == 3
    assert log.aborted_transactions(0, 3) == [(7, 1, 2, 3)]
    assert log.aborted_transactions(3, 9) == []
    assert files.read(f"{D}/00000000000000000000.txnindex") != b""


def test_a_committed_transaction_is_not(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    append(log, make_batch([b"x"], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    append(log, marker_batch(commit=True), check_sequence=False)
    assert log.aborted_transactions(0, 2) == []
    assert not any(entry.name.endswith(".txnindex") for entry in files.list(D))


# Rolling


def test_a_segment_rolls_by_size(files: SimulatedFiles) -> None:
    log = new_log(files, D, LogConfig(segment_bytes=500))
    for _ in range(10):
        append_values(log, b"x" * 100)
    assert all(segment.size <= 500 for segment in log.segments)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]


def test_a_batch_larger_than_a_segment_is_refused(files: SimulatedFiles) -> None:
    log = new_log(files, D, LogConfig(segment_bytes=500))
    assert code_of(lambda: append_values(log, b"x" * 600)) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_segment_rolls_by_the_records_time(files: SimulatedFiles) -> None:
    log = new_log(files, D, LogConfig(segment_ms=1000))
    for timestamp in (NOW_MS, NOW_MS + 1000, NOW_MS + 1001, NOW_MS + 1500):
        append_values(log, b"x", timestamp=timestamp)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_an_idle_segment_rolls_by_the_clock(files: SimulatedFiles) -> None:
    log = new_log(files, D, LogConfig(segment_ms=1000))
    log.maybe_roll(NOW_MS + 5000)
    assert len(log.segments) == 1
    append_values(log, b"x", timestamp=5)
    log.maybe_roll(NOW_MS + 1000)
    assert len(log.segments) == 1
    log.maybe_roll(NOW_MS + 1001)
    assert len(log.segments) == 2


def test_jitter_makes_segments_roll_earlier(files: SimulatedFiles) -> None:
    log = new_log(files, D, LogConfig(segment_ms=1000, segment_jitter_ms=500))
    log.config = log.config
    assert 500 < log.active.roll_after_ms <= 1000


def test_a_segment_rolls_when_an_index_is_full(files: SimulatedFiles) -> None:
    log = new_log(files, D, LogConfig(segment_index_bytes=80, index_interval_bytes=0))
    for number in range(30):
        append_values(log, b"x", timestamp=NOW_MS + number)
    assert len(log.segments) > 3
    for segment in log.segments:
        assert len(segment.offsets) * 8 <= 80
        assert len(segment.times) * 12 <= 80


def test_a_snapshot_is_taken_at_each_roll(files: SimulatedFiles) -> None:
    log = new_log(files, D, LogConfig(segment_bytes=500))
    for _ in range(6):
        append_values(log, b"x" * 100)
    assert log._saved.snapshots.offsets == [2, 4]


# Durability


def test_an_append_is_synced_by_its_ticket_only(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    log.sync()
    assert log.begin_sync() is None
    append_values(log, b"a")
    assert (log.synced_offset, log.end_offset) == (0, 1)
    ticket = log.begin_sync()
    assert ticket is not None
    append_values(log, b"b")
    assert log.begin_sync() is None  # one at a time
    assert sync_tickets(files, [ticket]) == [None]
    log.complete_sync(ticket, None)
    assert log.synced_offset == 1
    log.sync()
    assert log.synced_offset == 2


def test_a_segment_is_on_disk_before_the_next_one_begins(files: SimulatedFiles) -> None:
    log = new_log(files, D, LogConfig(segment_bytes=300, index_interval_bytes=0))
    for _ in range(4):
        append_values(log, b"x" * 50)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert log.synced_offset == 2
    ticket = log.begin_sync()
    assert ticket is not None
    assert ticket.files == [log.active.log]
    log.complete_sync(ticket, None)
    assert log.synced_offset == 4


def test_a_failed_sync_at_a_roll_fails_the_log(files: SimulatedFiles) -> None:
    log = new_log(files, D, LogConfig(segment_bytes=300))
    append_values(log, b"x" * 200)
    files.fail_syncs = 1
    assert code_of(lambda: append_values(log, b"x" * 200)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failed


def test_truncating_lowers_what_an_outstanding_ticket_promises(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    for _ in range(4):
        append_values(log, b"x")
    ticket = log.begin_sync()
    assert ticket is not None
    log.truncate_to(2)
    append_values(log, b"new")
    log.complete_sync(ticket, None)
    assert (log.synced_offset, log.end_offset) == (2, 3)


def test_a_failed_sync_fails_the_log_for_good(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    append_values(log, b"synced")
    log.sync()
    append_values(log, b"not synced")
    files.fail_syncs = 1
    assert code_of(log.sync) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failed
    assert log.begin_sync() is None
    assert log.synced_offset == 1
    assert code_of(lambda: append_values(log, b"refused")) is ErrorCode.KAFKA_STORAGE_ERROR
    fetched = make_batch([b"x"], base_offset=2)
    assert code_of(lambda: log.append_as_follower(fetched, NOW_MS)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert values_of(log)[0] == (0, b"synced")


def test_a_full_disk_changes_nothing_and_passes(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    append(log, make_batch([b"a"], producer_id=7, producer_epoch=0, base_sequence=0))
    size = log.active.size
    for free in range(size):
        files.free_bytes = free
        batch = make_batch([b"b"], producer_id=7, producer_epoch=0, base_sequence=1)
        assert code_of(lambda batch=batch: append(log, batch)) is ErrorCode.KAFKA_STORAGE_ERROR  # type: ignore[misc]
        assert (log.end_offset, log.active.size, log.failed) == (1, size, False)
        assert len(files.read(f"{D}/00000000000000000000.log")) == size
    assert values_of(log) == [(0, b"a")]
    files.free_bytes = None
    append(log, make_batch([b"b"], producer_id=7, producer_epoch=0, base_sequence=1))
    assert values_of(log) == [(0, b"a"), (1, b"b")]


def test_a_full_disk_at_a_roll_and_at_a_new_epoch(files: SimulatedFiles) -> None:
    log = new_log(files, D, LogConfig(segment_bytes=330, index_interval_bytes=0))
    for _ in range(2):
        append_values(log, b"x" * 90)
    files.free_bytes = 5
    assert code_of(lambda: append_values(log, b"y" * 90)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code_of(lambda: append_values(log, b"y" * 9, epoch=1)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.end_offset, len(log.segments)) == (2, 1)
    files.free_bytes = None
    append_values(log, b"y" * 90, epoch=1)
    assert (log.end_offset, len(log.segments)) == (3, 2)
    assert log.leader_epochs.entries == [(0, 0), (1, 2)]


def test_a_full_disk_at_an_abort_marker(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    append(log, make_batch([b"x"], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    files.free_bytes = len(marker_batch(commit=False)) + 10
    marker = marker_batch(commit=False)
    assert code_of(lambda: append(log, marker, check_sequence=False)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.end_offset, log.last_stable_offset(1), log.aborted_transactions(0, 9)) == (1, 0, [])
    files.free_bytes = None
    append(log, marker_batch(commit=False), check_sequence=False)
    assert log.aborted_transactions(0, 9) == [(7, 0, 1, 2)]


def test_an_abort_whose_index_cannot_be_named_is_undone(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    append(log, make_batch([b"x"], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    files.fail_syncs = 1
    marker = marker_batch(commit=False)
    assert code_of(lambda: append(log, marker, check_sequence=False)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.end_offset, log.aborted_transactions(0, 9), log.failed) == (1, [], True)


def test_a_directory_that_does_not_sync_fails_the_log(files: SimulatedFiles) -> None:
    log = new_log(files, D, LogConfig(segment_bytes=300))
    append_values(log, b"x" * 200)
    syncs = files.syncs

    def fail_the_last() -> None:
        files.fail_syncs = int(files.syncs == syncs + 5)  # log, two indexes, snapshot, directory

    files.on_sync = fail_the_last
    assert code_of(lambda: append_values(log, b"x" * 200)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failed


# Cutting


@pytest.mark.parametrize("offset", range(21))
def test_truncating_keeps_what_lies_before(files: SimulatedFiles, offset: int) -> None:
    config = LogConfig(segment_bytes=400, index_interval_bytes=0)
    log = new_log(files, D, config)
    for number in range(10):
        append_values(log, b"%d" % number, b"x" * 50, epoch=number // 3, timestamp=NOW_MS + number)
    kept = offset - offset % 2
    assert log.truncate_to(offset) is (offset < 20)
    assert log.end_offset == kept
    assert [record for record, _ in values_of(log)] == list(range(kept))
    assert log.leader_epochs.entries == [(epoch, epoch * 6) for epoch in range(4) if epoch * 6 < kept]
    append_values(log, b"new", epoch=9)
    assert values_of(log)[-1] == (kept, b"new")
    files.sync_directory("/")
    files.sync_directory("/data")
    files.crash()
    again = reopen(files, D, config)
    assert [record for record, _ in values_of(again)] == list(range(again.end_offset))
    assert again.end_offset <= kept + 1


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    "cut", [lambda log: log.truncate_to(3), lambda log: log.truncate_fully_and_start_at(1000)]
)
def test_a_crash_while_a_log_is_cut_leaves_no_hole(cut: Callable[[Log], object], seed: int) -> None:
    config = LogConfig(segment_bytes=300)
    for steps in range(100):
        files = durable_disk(D)
        log = new_log(files, D, config)
        for number in range(8):
            append_values(log, b"%d" % number * 100)
        log.persist_state()
        log.sync()
        is_cut_short = cut_power_within(files, partial(cut, log), steps, seed)
        offsets = [offset for offset, _ in values_of(reopen(files, D, config))]
        assert offsets == list(range(len(offsets)))
        if not is_cut_short:
            return
    pytest.fail("there are more steps than were tried")


def test_truncating_into_a_gap_leaves_nothing_unsynced(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    append_values(log, b"a", b"b")
    log.append_as_follower(make_batch([b"c"], base_offset=9), NOW_MS)
    log.truncate_to(5)
    assert log.end_offset == log.synced_offset == 5


def test_truncating_takes_back_producers_and_transactions(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    for sequence in range(4):
        append(log, make_batch([b"x"], producer_id=7, producer_epoch=0, base_sequence=sequence))
    append(log, make_batch([b"x"], producer_id=7, producer_epoch=0, base_sequence=4, transactional=True))
    append(log, marker_batch(commit=False), check_sequence=False)
    log.truncate_to(2)
    assert log.aborted_transactions(0, 99) == []
    assert log.last_stable_offset(2) == 2
    gap = make_batch([b"x"], producer_id=7, producer_epoch=0, base_sequence=3)
    assert code_of(lambda: append(log, gap)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, make_batch([b"x"], producer_id=7, producer_epoch=0, base_sequence=2))


def test_truncating_fully_and_starting_elsewhere(files: SimulatedFiles) -> None:
    log = new_log(files, D, LogConfig(segment_bytes=300))
    for _ in range(5):
        append_values(log, b"x" * 100)
    log.truncate_fully_and_start_at(1000)
    assert (log.log_start_offset, log.end_offset, log.synced_offset) == (1000, 1000, 1000)
    assert log.leader_epochs.entries == []
    assert append_values(log, b"new").base_offset == 1000
    names = sorted(entry.name for entry in files.list(D) if entry.name.startswith("0"))
    assert names == [f"00000000000000001000.{kind}" for kind in ("index", "log", "timeindex")]


def test_truncating_below_the_first_segment_starts_over_there(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    log.truncate_fully_and_start_at(100)
    append_values(log, b"x")
    log.truncate_to(50)
    assert (log.log_start_offset, log.end_offset) == (50, 50)


def test_deleting_records_moves_the_start(files: SimulatedFiles) -> None:
    log = new_log(files, D, LogConfig(segment_bytes=300))
    for number in range(9):
        append_values(log, b"x" * 100, epoch=number)
    assert log.delete_records_before(5) == 5
    assert log.delete_records_before(3) == 5
    assert code_of(lambda: log.delete_records_before(10)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert values_of(log)[0][0] == 5
    assert log.leader_epochs.entries[0] == (5, 5)
    assert delete_old_segments(log, NOW_MS, 9) == 5
    assert log.segments[0].base_offset == 5


# Descriptors


def test_many_logs_share_few_descriptors(tmp_path: Path) -> None:
    files = DiskFiles(max_open=5)
    logs = [
        new_log(files, str(tmp_path / f"t-{number}"), LogConfig(segment_bytes=300)) for number in range(10)
    ]
    rng = random.Random(1)
    for number in range(200):
        append_values(logs[rng.randrange(10)], b"%d" % number * 10)
        if number % 20 == 0:
            logs[rng.randrange(10)].sync()
    assert len(files.open_files) <= 5
    assert sum(len(values_of(log)) for log in logs) == 200


def test_a_log_knows_its_size(files: SimulatedFiles) -> None:
    log: Log = new_log(files, D, LogConfig(segment_bytes=300))
    batches = [make_batch([b"x" * 100]) for _ in range(5)]
    for batch in batches:
        append(log, batch)
    assert log.size_bytes == sum(map(len, batches))


def test_a_log_whose_sync_failed_is_neither_rolled_nor_taken_for_synced(files: SimulatedFiles) -> None:
    """Linux reports a failed sync once. The next one succeeds, whatever became of the data."""
    log = new_log(files, D, LogConfig(segment_ms=1000))
    append_values(log, b"durable")
    log.sync()
    append_values(log, b"lost")
    files.fail_syncs = 1
    assert code_of(log.sync) is ErrorCode.KAFKA_STORAGE_ERROR
    log.maybe_roll(NOW_MS + 2000)
    assert code_of(lambda: log.roll(NOW_MS)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code_of(log.persist_state) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.failed, log.synced_offset, len(log.segments)) == (True, 1, 1)


@pytest.mark.parametrize("change", [lambda log: log.roll(NOW_MS), lambda log: log.truncate_to(2)])
@pytest.mark.parametrize("fails", [False, True])
def test_what_is_synced_again_before_a_sync_is_known_to_have_failed_is_not_taken_for_synced(
    files: SimulatedFiles, change: Callable[[Log], object], fails: bool
) -> None:
    log = new_log(files, D)
    append_values(log, b"durable")
    log.sync()
    append_values(log, b"perhaps lost")
    ticket = log.begin_sync()
    assert ticket is not None
    files.fail_syncs = int(fails)
    (error,) = sync_tickets(files, [ticket])
    append_values(log, b"later")
    change(log)
    assert log.synced_offset == 1
    log.complete_sync(ticket, error)
    assert (log.failed, log.synced_offset) == (fails, 1 if fails else log.end_offset)


def test_a_ticket_that_comes_back_after_another_sync_has_failed_tells_nothing(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    append_values(log, b"perhaps lost")
    ticket = log.begin_sync()
    assert ticket is not None
    files.fail_syncs = 1
    assert code_of(lambda: log.roll(NOW_MS)) is ErrorCode.KAFKA_STORAGE_ERROR
    log.complete_sync(ticket, *sync_tickets(files, [ticket]))
    assert (log.failed, log.synced_offset) == (True, 0)


def test_retention_keeps_the_last_segment_of_a_log_that_has_failed(files: SimulatedFiles) -> None:
    log = new_log(files, D, LogConfig(retention_ms=1000))
    append_values(log, b"old")
    log.roll(NOW_MS)
    append_values(log, b"newest")
    files.fail_syncs = 1
    assert code_of(log.sync) is ErrorCode.KAFKA_STORAGE_ERROR
    assert delete_old_segments(log, NOW_MS + 2000, log.end_offset) == 1
    assert values_of(log) == [(1, b"newest")]


def test_an_append_after_the_state_was_saved_has_to_be_saved_too(files: SimulatedFiles) -> None:
    log = new_log(files, D)
    append_values(log, b"first")
    assert log.is_unsaved
    log.persist_state()
    assert not log.is_unsaved
    append_values(log, b"second")
    assert log.is_unsaved
