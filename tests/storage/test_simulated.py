"""The simulated disk: what it must lose in a crash, and what it must keep."""

import errno
import random

import pytest

from odradek.storage.disk.simulated import PAGE_BYTES, SimulatedFiles


def disk() -> SimulatedFiles:
    files = SimulatedFiles()
    files.make_directory("/data")
    files.sync_directory("/")
    return files


def test_an_unsynced_write_is_lost() -> None:
    files = disk()
    file = files.create("/data/file")
    file.write_at(0, b"kept")
    file.sync()
    files.sync_directory("/data")
    file.write_at(4, b"lost")
    assert files.read("/data/file") == b"keptlost"
    files.crash()
    assert files.read("/data/file") == b"kept"


def test_an_unsynced_name_is_lost_with_all_its_data() -> None:
    files = disk()
    file = files.create("/data/file")
    file.write_at(0, b"synced, but nameless")
    file.sync()
    files.crash()
    with pytest.raises(FileNotFoundError):
        files.read("/data/file")


def test_an_unsynced_rename_is_undone() -> None:
    files = disk()
    files.create("/data/old").sync()
    files.sync_directory("/data")
    files.rename("/data/old", "/data/new")
    files.crash()
    assert [entry.name for entry in files.list("/data")] == ["old"]


def test_an_unsynced_removal_and_truncation_are_undone() -> None:
    files = disk()
    for name in ("removed", "truncated"):
        file = files.create(f"/data/{name}")
        file.write_at(0, b"data")
        file.sync()
    files.sync_directory("/data")
    files.remove("/data/removed")
    files.file("/data/truncated").truncate(1)
    assert files.read("/data/truncated") == b"d"
    files.crash()
    assert files.read("/data/removed") == files.read("/data/truncated") == b"data"


def test_a_random_crash_keeps_a_prefix_of_the_changes() -> None:
    seen = set()
    for seed in range(200):
        files = disk()
        file = files.create("/data/file")
        file.sync()
        files.sync_directory("/data")
        file.write_at(0, b"ab")
        file.write_at(2, b"cd")
        files.crash(random.Random(seed))
        seen.add(files.read("/data/file"))
    assert seen == {b"", b"a", b"ab", b"abc", b"abcd"}


def test_a_full_disk_takes_a_part() -> None:
    files = disk()
    files.free_bytes = 3
    file = files.create("/data/file")
    with pytest.raises(OSError, match="no space") as raised:
        file.write_at(0, b"12345")
    assert raised.value.errno == errno.ENOSPC
    assert files.read("/data/file") == b"123"
    file.truncate(0)
    file.write_at(0, b"123")


def test_a_failed_sync_loses_the_data_and_the_next_one_succeeds() -> None:
    files = disk()
    file = files.create("/data/file")
    files.sync_directory("/data")
    file.write_at(0, b"data")
    files.fail_syncs = 1
    with pytest.raises(OSError, match="failed to sync"):
        file.sync()
    file.sync()
    assert files.read("/data/file") == b"data"
    files.crash()
    assert files.read("/data/file") == b""


def test_any_pages_of_an_unsynced_write_may_be_on_disk() -> None:
    """A hole in the middle, too; never anything that was not written, nor a part of a page."""
    content, found = b"x" * (5 * PAGE_BYTES), set()
    for seed in range(200):
        files = disk()
        file = files.create("/data/file")
        files.sync_directory("/data")
        file.write_at(PAGE_BYTES // 2, content)
        files.crash(random.Random(seed), is_scattered=True)
        found.add(files.read("/data/file"))
    seen = {bytes(data).rstrip(b"\0") for data in found}
    assert any(b"x\0" in data and b"\0x" in data for data in found), "there is a hole"
    assert {(len(data) + PAGE_BYTES // 2) % PAGE_BYTES for data in seen} <= {0, PAGE_BYTES // 2}
    assert b"" in seen and bytes(PAGE_BYTES // 2) + content in seen
