"""The simulated disk: what it must lose in a crash, and what it must keep."""

import errno
import random

import pytest

from odradek.storage.disk.simulated import PowerCut, SimulatedFiles
from odradek.storage.disk.simulated_nodes import PAGE_BYTES


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


def test_a_failed_sync_does_not_undo_a_cut() -> None:
    files = disk()
    file = files.create("/data/file")
    files.sync_directory("/data")
    file.write_at(0, b"data")
    file.sync()
    file.truncate(2)
    file.write_at(2, b"more")
    files.fail_syncs = 1
    with pytest.raises(OSError, match="failed to sync"):
        file.sync()
    file.sync()
    files.crash()
    assert files.read("/data/file") == b"da"


def test_a_file_system_that_cannot_write_its_journal_shuts_down_until_the_machine_was_off() -> None:
    files = disk()
    file = files.create("/data/file")
    files.fail_syncs = 1
    with pytest.raises(OSError, match="failed to sync"):
        files.sync_directory("/data")
    for change in (lambda: file.write_at(0, b"x"), file.sync, lambda: files.create("/data/other")):
        with pytest.raises(OSError, match="has shut down"):
            change()
    files.crash()
    assert not files.exists("/data/file")
    files.create("/data/file").write_at(0, b"x")
    files.sync_directory("/data")


def test_a_scattered_crash_keeps_any_write_and_a_plain_one_only_those_before_a_lost_one() -> None:
    for is_scattered in (False, True):
        found = set()
        for seed in range(200):
            files = disk()
            file = files.create("/data/file")
            file.write_at(0, b"....")
            file.sync()
            files.sync_directory("/data")
            for position in range(4):
                file.write_at(position, b"x")
            files.crash(random.Random(seed), is_scattered)
            found.add(files.read("/data/file"))
        assert (b"...x" in found) is is_scattered
        assert {b"....", b"xx..", b"xxxx"} <= found


def test_in_a_scattered_crash_the_changes_of_one_name_keep_their_order() -> None:
    found = set()
    for seed in range(100):
        files = disk()
        for name in ("a", "b"):
            files.create(f"/data/{name}").sync()
        files.sync_directory("/data")
        files.rename("/data/a", "/data/a.swap")
        files.rename("/data/b", "/data/b.deleted")
        files.rename("/data/a.swap", "/data/c")
        files.crash(random.Random(seed), is_scattered=True)
        found.add(tuple(sorted(entry.name for entry in files.list("/data"))))
    assert found == {
        ("a", "b"),
        ("a.swap", "b"),
        ("a", "b.deleted"),
        ("a.swap", "b.deleted"),
        ("b", "c"),
        ("b.deleted", "c"),
    }


def test_a_crash_tells_how_many_written_bytes_are_lost_with_or_without_their_names() -> None:
    files = disk()
    named, nameless = files.create("/data/named"), None
    files.sync_directory("/data")
    nameless = files.create("/data/nameless")
    named.write_at(0, b"lost")
    nameless.write_at(0, b"lost too")
    nameless.sync()
    nameless.write_at(8, b" and this")
    assert files.crash() == len("lost") + len(" and this")
    assert files.crash() == 0


def test_after_a_power_cut_the_old_disk_is_of_no_use_and_the_new_one_goes_on() -> None:
    files = disk()
    file = files.create("/data/file")
    file.write_at(0, b"kept")
    file.sync()
    files.sync_directory("/data")
    file.write_at(4, b"lost")
    after = files.cut_power()
    after.crash()
    for use in (file.sync, file.size, lambda: file.write_at(0, b"no"), lambda: files.list("/data")):
        with pytest.raises(PowerCut):
            use()
    assert after.read("/data/file") == b"kept"


def test_power_may_be_cut_before_any_change() -> None:
    files = disk()
    paths = []

    def count(path: str) -> None:
        paths.append(path)
        if len(paths) == 4:
            raise PowerCut

    files.on_change = count
    file = files.create("/data/file")
    file.write_at(0, b"data")
    file.truncate(1)
    with pytest.raises(PowerCut):
        file.rename("/data/other")
    assert paths == ["/data/file"] * 3 + ["/data/other"]
    assert files.exists("/data/file")


def test_a_removed_directory_gives_its_space_back() -> None:
    files = disk()
    files.make_directory("/data/topic-0")
    files.free_bytes = 10
    files.create("/data/topic-0/log").write_at(0, b"0123456789")
    files.remove_tree("/data/topic-0")
    assert files.free_bytes == 10


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
