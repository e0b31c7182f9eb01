"""Which segments go, when, and how."""

import dataclasses

from odradek.storage.config import LogConfig
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.log.log import Log
from odradek.storage.log.retention import delete_old_segments, next_due_ms
from tests.storage.batches import NOW_MS, append_values, new_log, reopen

D = "/data/topic-0"
SIZE = 160  # of a batch with one value of 90 bytes


def log_of(segments: int, **settings: int | bool) -> tuple[SimulatedFiles, Log]:
    """One batch in each segment, a second apart."""
    files = SimulatedFiles()
    config = LogConfig(segment_bytes=200, **settings)  # type: ignore[arg-type]
    log = new_log(files, D, config)
    for number in range(segments):
        append_values(log, b"x" * 90, timestamp=NOW_MS + number * 1000)
    assert len(log.segments) == segments
    assert log.segments[0].size == SIZE
    return files, log


def test_old_segments_go() -> None:
    _, log = log_of(5, retention_ms=10_000)
    assert delete_old_segments(log, NOW_MS + 10_000, 5) == 0
    assert delete_old_segments(log, NOW_MS + 11_001, 5) == 2
    assert (log.log_start_offset, log.segments[0].base_offset) == (2, 2)


def test_an_active_segment_that_expired_is_replaced_by_an_empty_one() -> None:
    _, log = log_of(2, retention_ms=10_000)
    assert delete_old_segments(log, NOW_MS + 60_000, 2) == 2
    assert (log.log_start_offset, log.end_offset, log.size_bytes) == (2, 2, 0)
    assert [segment.base_offset for segment in log.segments] == [2]
    assert delete_old_segments(log, NOW_MS + 99_000, 2) == 0
    assert append_values(log, b"next").base_offset == 2


def test_what_is_not_committed_stays() -> None:
    _, log = log_of(4, retention_ms=1)
    assert delete_old_segments(log, NOW_MS + 60_000, 2) == 2
    assert log.log_start_offset == 2


def test_a_log_larger_than_it_may_be_loses_its_oldest_segments() -> None:
    _, log = log_of(5, retention_bytes=3 * SIZE, retention_ms=-1)
    assert delete_old_segments(log, NOW_MS, 5) == 2
    _, log = log_of(5, retention_bytes=3 * SIZE + 1, retention_ms=-1)
    assert delete_old_segments(log, NOW_MS, 5) == 1


def test_a_compacted_log_keeps_its_age_and_size() -> None:
    _, log = log_of(5, retention_bytes=1, retention_ms=1, compact=True, delete=False)
    assert delete_old_segments(log, NOW_MS + 10**10, 5) == 0
    log.delete_records_before(3)
    assert delete_old_segments(log, NOW_MS + 10**10, 5) == 3


def test_settings_can_be_replaced() -> None:
    _, log = log_of(3, retention_ms=-1)
    assert delete_old_segments(log, NOW_MS + 10**12, 3) == 0
    log.config = dataclasses.replace(log.config, retention_ms=1000)
    assert delete_old_segments(log, NOW_MS + 10**12, 3) == 3


def test_files_change_their_names_now_and_go_later() -> None:
    files, log = log_of(3, retention_ms=10_000, file_delete_delay_ms=500)
    now_ms = NOW_MS + 10_001
    assert delete_old_segments(log, now_ms, 3) == 1
    names = {entry.name for entry in files.list(D)}
    assert {f"00000000000000000000.{kind}.deleted" for kind in ("log", "index", "timeindex")} <= names
    assert not log._row._retired._deletions.run_next(now_ms + 499)
    assert {entry.name for entry in files.list(D)} == names
    while log._row._retired._deletions.run_next(now_ms + 500):
        pass
    assert not any(entry.name.endswith(".deleted") for entry in files.list(D))


def test_a_slice_handed_out_before_is_still_readable() -> None:
    _, log = log_of(3, retention_ms=10_000)
    part = log.read(0, 1000, 3)
    assert part is not None
    delete_old_segments(log, NOW_MS + 10_001, 3)
    assert len(part.file.read_at(part.position, part.length)) == SIZE


def test_snapshots_go_with_their_segments() -> None:
    _, log = log_of(4, retention_ms=10_000)
    assert log._saved.snapshots.offsets == [1, 2, 3]
    delete_old_segments(log, NOW_MS + 11_001, 4)
    assert log._saved.snapshots.offsets == [2, 3]


def test_a_deletion_that_a_crash_undid_is_done_again_from_the_start_offset() -> None:
    files, log = log_of(4, retention_ms=10_000)
    log.persist_state()
    delete_old_segments(log, NOW_MS + 11_001, 4)
    for directory in ("/", "/data"):
        files.sync_directory(directory)
    files.crash()
    again = reopen(files, D, log.config, log_start_offset=2)
    assert (again.log_start_offset, again.end_offset) == (2, 4)
    assert delete_old_segments(again, NOW_MS, 4) == 2


def test_when_there_will_be_something_to_do() -> None:
    _, log = log_of(2, retention_ms=10_000, segment_ms=99_000)
    assert next_due_ms(log) == NOW_MS + 10_001
    _, log = log_of(2, retention_ms=-1, segment_ms=99_000)
    assert next_due_ms(log) == NOW_MS + 99_001
    assert next_due_ms(new_log(SimulatedFiles(), D)) is None
