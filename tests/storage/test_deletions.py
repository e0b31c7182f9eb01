"""Removing what was deleted: one failure keeps nothing else, and no name is used twice."""

import errno
import logging
import os
import random
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.model import TopicPartition
from odradek.storage.config import LogConfig
from odradek.storage.disk.deletions import FIRST_RETRY_MS, LONGEST_RETRY_MS, Deletions
from odradek.storage.disk.files import DiskFiles, Files
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.log.log import Log
from odradek.storage.store import LogStore
from tests.storage.batches import NOW_MS, append_values, compact_first_segment, new_log, reopen, values_of

DELAY_MS = 60_000
CONFIG = LogConfig(segment_bytes=300, file_delete_delay_ms=DELAY_MS)
LATER = NOW_MS + DELAY_MS


def failing(times: int, done: list[str]) -> Callable[[], None]:
    left = [times]

    def remove() -> None:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        done.append("late")

    return remove


def run_all(deletions: Deletions, now_ms: int) -> int:
    count = 0
    while deletions.run_next(now_ms):
        count += 1
    return count


# A failure


def test_a_failure_keeps_nothing_else_from_being_removed() -> None:
    deletions, done = Deletions(), list[str]()
    deletions.schedule(NOW_MS, failing(1, done))
    deletions.schedule(NOW_MS, lambda: done.append("other"))
    assert run_all(deletions, NOW_MS) == 2
    assert done == ["other"]
    assert run_all(deletions, NOW_MS + FIRST_RETRY_MS - 1) == 0
    assert run_all(deletions, NOW_MS + FIRST_RETRY_MS) == 1
    assert done == ["other", "late"]
    assert len(deletions) == 0


def test_each_attempt_waits_longer_up_to_a_bound() -> None:
    deletions, now_ms, waits = Deletions(), NOW_MS, []
    deletions.schedule(NOW_MS, failing(15, []))
    while len(deletions):
        waits.append(deletions._due[0].due_ms - now_ms)
        now_ms = deletions._due[0].due_ms
        assert run_all(deletions, now_ms) == 1
    assert waits[:5] == [0, 1000, 2000, 4000, 8000]
    assert waits[-1] == LONGEST_RETRY_MS


def test_a_failure_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    deletions = Deletions()
    with caplog.at_level(logging.INFO):
        deletions.schedule(NOW_MS, failing(5, []))
        for attempt in range(8):
            run_all(deletions, NOW_MS + (FIRST_RETRY_MS << attempt))
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "Device or resource busy" in caplog.text
    assert "Traceback" not in caplog.text


# Names


def two_segments(files: Files, directory: str) -> Log:
    log = new_log(files, directory, CONFIG)
    for value in (b"a", b"b"):
        append_values(log, value * 200)
    assert len(log.segments) == 2
    return log


def names_of(files: Files, directory: str) -> list[str]:
    return sorted(entry.name for entry in files.list(directory))


@pytest.mark.parametrize("kind", ["disk", "simulated"])
def test_a_segment_is_retired_again_within_the_delay(kind: str, tmp_path: Path) -> None:
    files: Files = DiskFiles() if kind == "disk" else SimulatedFiles()
    directory = str(tmp_path / "topic-0") if kind == "disk" else "/data/topic-0"
    log = two_segments(files, directory)
    before = values_of(log)
    for _ in range(5):
        compact_first_segment(log)
    logs = [name for name in names_of(files, directory) if ".log" in name and name.endswith(".deleted")]
    assert len(logs) == len(set(logs)) == 5
    assert "00000000000000000000.log.deleted" in logs
    assert run_all(log._row._retired._deletions, LATER) == 5
    assert len(log._row._retired._deletions) == 0
    assert not [name for name in names_of(files, directory) if "deleted" in name]
    assert values_of(log) == before
    compact_first_segment(log)  # the plain name is free again
    assert "00000000000000000000.log.deleted" in names_of(files, directory)


def test_leftovers_of_several_retirements_are_removed_at_start(tmp_path: Path) -> None:
    files = DiskFiles()
    log = two_segments(files, str(tmp_path / "topic-0"))
    before = values_of(log)
    for _ in range(3):
        compact_first_segment(log)
    log.sync()
    log.close()
    again = reopen(files, log.directory, CONFIG)
    assert not [name for name in names_of(files, log.directory) if "deleted" in name]
    assert values_of(again) == before


def test_retired_segments_hold_no_descriptors_unless_they_are_read(tmp_path: Path) -> None:
    files = DiskFiles()
    log = two_segments(files, str(tmp_path / "topic-0"))
    part = log.read(0, 100, 1)
    assert part is not None
    part.file.pin()
    compact_first_segment(log)
    assert {file.path for file in files.open_files if "deleted" in file.path} == {part.file.path}
    run_all(log._row._retired._deletions, LATER)
    assert len(part.file.read_at(part.position, part.length)) == part.length
    part.file.unpin()
    assert not [file for file in files.open_files if "deleted" in file.path]
    for descriptor in Path("/proc/self/fd").iterdir():
        assert str(tmp_path) not in _target(descriptor) or "deleted" not in _target(descriptor)


def _target(descriptor: Path) -> str:
    try:
        return os.readlink(descriptor)
    except OSError:
        return ""


# The directory is renamed


@pytest.mark.parametrize("kind", ["disk", "simulated"])
@pytest.mark.parametrize("removed_first", ["segments", "directory"])
def test_a_topic_with_retired_segments_is_deleted(
    kind: str, removed_first: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files: Files = DiskFiles() if kind == "disk" else SimulatedFiles()
    directory = str(tmp_path / "data") if kind == "disk" else "/data"
    store = LogStore(files, directory, rng=random.Random(0))
    partition = TopicPartition("t", 0)
    log = store.create(partition, uuid.UUID(int=1), CONFIG, NOW_MS)
    for value in (b"a", b"b"):
        append_values(log, value * 200)
    for _ in range(3):
        compact_first_segment(log)
    if removed_first == "directory":
        log.config = LogConfig(segment_bytes=300, file_delete_delay_ms=1)
    store.delete([partition], NOW_MS)
    assert any(entry.name.endswith("-delete") for entry in files.list(directory))
    run_all(store.deletions, NOW_MS + 1)
    run_all(store.deletions, LATER)
    assert len(store.deletions) == 0
    assert not caplog.records
    assert not [entry for entry in files.list(directory) if entry.is_directory]
    if isinstance(files, DiskFiles):
        assert not files.open_files
    store.release()


def test_a_topic_made_again_keeps_its_files(tmp_path: Path) -> None:
    """Removals of the old topic's segments are due while a new one has their names."""
    files = DiskFiles()
    store = LogStore(files, str(tmp_path / "data"), rng=random.Random(0))
    partition = TopicPartition("t", 0)
    log = store.create(partition, uuid.UUID(int=1), CONFIG, NOW_MS)
    for value in (b"a", b"b"):
        append_values(log, value * 200)
    compact_first_segment(log)
    store.delete([partition], NOW_MS)
    again = store.create(partition, uuid.UUID(int=2), CONFIG, NOW_MS)
    for value in (b"c", b"d"):
        append_values(again, value * 200)
    compact_first_segment(again)
    compact_first_segment(again)
    run_all(store.deletions, LATER)
    assert [value[:1] for _, value in values_of(again)] == [b"c", b"d"]
    assert len(store.deletions) == 0
    store.release()


@pytest.mark.parametrize("offset", [0, 1])
def test_a_log_cut_while_segments_are_retired(offset: int, tmp_path: Path) -> None:
    files = DiskFiles()
    log = two_segments(files, str(tmp_path / "topic-0"))
    compact_first_segment(log)
    log.truncate_to(offset)
    for _ in range(2 - offset):
        append_values(log, b"n" * 200)
    compact_first_segment(log)
    run_all(log._row._retired._deletions, LATER)
    assert [found for found, _ in values_of(log)] == [0, 1]
    assert len(log._row._retired._deletions) == 0
