"""Indexes are hints: whatever is in them, the right batches are found."""

import random

import pytest

from odradek.storage.config import LogConfig
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.log.log import Log
from odradek.storage.log.lookup import offset_for_timestamp, offset_of_max_timestamp
from odradek.storage.log.retention import delete_old_segments
from tests.storage.batches import NOW_MS, append_values, new_log, reopen, values_of

D = "/data/topic-0"
CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=150)


def written_log(files: SimulatedFiles) -> Log:
    """Forty batches of two records in several segments, on disk."""
    log = new_log(files, D, CONFIG)
    for number in range(40):
        append_values(log, b"%d" % number, b"x", timestamp=NOW_MS + number * 10)
    log.persist_state()
    return log


def index_files(files: SimulatedFiles) -> list[str]:
    return [f"{D}/{entry.name}" for entry in files.list(D) if entry.name.endswith("index")]


def check_lookups(log: Log) -> None:
    assert [offset for offset, _ in values_of(log)] == list(range(80))
    for number in range(40):
        part = log.read(number * 2 + 1, 1, 80)
        assert part is not None
        found = offset_for_timestamp(log, NOW_MS + number * 10 - 9, 80)
        assert found is not None
        assert found[:2] == (NOW_MS + number * 10, number * 2)
    assert offset_of_max_timestamp(log) == (NOW_MS + 390, 78, 0)


def test_lookups_with_sound_indexes() -> None:
    files = SimulatedFiles()
    written_log(files)
    before = {path: files.read(path) for path in index_files(files)}
    log = reopen(files, D, CONFIG, clean=True)
    assert len(log.segments) > 2
    check_lookups(log)
    assert {path: files.read(path) for path in index_files(files)} == before


@pytest.mark.parametrize("seed", range(20))
def test_damaged_indexes_are_built_anew(seed: int) -> None:
    rng = random.Random(seed)
    files = SimulatedFiles()
    written_log(files)
    for path in index_files(files):
        data = bytearray(files.read(path))
        if not data:
            continue
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        file = files.create(path)
        file.write_at(0, data[: rng.randrange(len(data) + 1)])
    check_lookups(reopen(files, D, CONFIG, clean=True))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_missing_indexes_are_built_anew(suffix: str) -> None:
    files = SimulatedFiles()
    written_log(files)
    before = {path: files.read(path) for path in index_files(files)}
    for path in index_files(files):
        if path.endswith(suffix):
            files.remove(path)
    log = reopen(files, D, CONFIG, clean=True)
    assert {path: files.read(path) for path in index_files(files)} == before
    check_lookups(log)


def test_an_index_without_a_log_is_removed() -> None:
    files = SimulatedFiles()
    written_log(files)
    files.create(f"{D}/00000000000000009999.index")
    check_lookups(reopen(files, D, CONFIG, clean=True))
    assert not any("9999" in path for path in index_files(files))


def test_a_damaged_time_does_not_delete_a_segment() -> None:
    files = SimulatedFiles()
    written_log(files)
    path = f"{D}/00000000000000000000.timeindex"
    data = bytearray(files.read(path))
    data[-12:-4] = (1000).to_bytes(8, "big")  # the last entry, which retention reads, long ago
    files.create(path).write_at(0, data)
    log = reopen(files, D, CONFIG, clean=True)
    assert delete_old_segments(log, NOW_MS + 1000, 80) == 0


def test_index_entries_point_at_their_batches() -> None:
    files = SimulatedFiles()
    log = written_log(files)
    for segment in log.segments:
        ends = {position: header.last_offset for position, header in segment.batches()}
        entries = list(segment.offsets.entries(0, len(segment.offsets)))
        assert entries
        for relative_offset, position in entries:
            assert ends[position] == segment.base_offset + relative_offset
        times = list(segment.times.entries(0, len(segment.times)))
        assert times == sorted(times)
        assert times[-1][0] == segment.max_timestamp
