"""The real file system behind `DiskFiles`: bounded descriptors, pins, locks, whole writes."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.storage.disk import files as files_module
from odradek.storage.disk.files import DataDirectoryLocked, DiskFiles, Files
from odradek.storage.disk.simulated import SimulatedFiles


def test_open_files_are_bounded_and_reopened_when_used(tmp_path: Path) -> None:
    files = DiskFiles(max_open=4)
    made = [files.create(str(tmp_path / str(number))) for number in range(20)]
    for number, file in enumerate(made):
        file.write_at(0, bytes([number]))
    assert len(files.open_files) <= 4
    assert [file.read_at(0, 10) for file in made] == [bytes([number]) for number in range(20)]
    assert len(files.open_files) <= 4


def test_the_least_recently_used_file_is_closed_first(tmp_path: Path) -> None:
    files = DiskFiles(max_open=2)
    first, second = files.create(str(tmp_path / "1")), files.create(str(tmp_path / "2"))
    first.read_at(0, 1)
    third = files.create(str(tmp_path / "3"))
    assert list(files.open_files) == [first, third]
    assert second not in files.open_files


def test_a_pinned_file_stays_open(tmp_path: Path) -> None:
    files = DiskFiles(max_open=1)
    pinned = files.create(str(tmp_path / "pinned"))
    pinned.pin()
    descriptor = pinned.sync_descriptor()
    for number in range(5):
        files.create(str(tmp_path / str(number)))
    assert pinned.sync_descriptor() == descriptor
    os.fstat(descriptor)
    pinned.unpin()
    files.create(str(tmp_path / "another"))
    assert pinned not in files.open_files


def test_a_file_removed_while_pinned_is_closed_when_unpinned(tmp_path: Path) -> None:
    files = DiskFiles()
    file = files.create(str(tmp_path / "file"))
    file.write_at(0, b"data")
    file.pin()
    file.remove()
    file.sync()
    file.unpin()
    assert file not in files.open_files
    with pytest.raises(FileNotFoundError):
        file.read_at(0, 1)


def test_a_removed_file_is_not_resurrected(tmp_path: Path) -> None:
    files = DiskFiles()
    file = files.create(str(tmp_path / "file"))
    file.remove()
    with pytest.raises(FileNotFoundError):
        file.write_at(0, b"data")
    assert not (tmp_path / "file").exists()


def test_a_renamed_file_is_found_under_its_new_name(tmp_path: Path) -> None:
    files = DiskFiles()
    file = files.create(str(tmp_path / "old"))
    file.write_at(0, b"data")
    file.close()
    file.rename(str(tmp_path / "new"))
    assert file.read_at(0, 4) == b"data"


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite

    def short(descriptor: int, data: bytes, position: int) -> int:
        return real(descriptor, bytes(data)[:3], position)

    monkeypatch.setattr(files_module.os, "pwrite", short)
    file = DiskFiles().create(str(tmp_path / "file"))
    file.write_at(2, b"0123456789")
    assert file.read_at(0, 100) == b"\0\x000123456789"


def test_a_write_of_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module.os, "pwrite", lambda *_: 0)
    with pytest.raises(OSError, match="no more bytes") as raised:
        DiskFiles().create(str(tmp_path / "file")).write_at(0, b"data")
    assert raised.value.errno == errno.EIO


def test_many_files_are_synced_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = DiskFiles()
    made = [files.create(str(tmp_path / str(number))) for number in range(6)]
    calls: list[str] = []
    monkeypatch.setattr(files_module, "syncfs", lambda _: calls.append("syncfs"))
    monkeypatch.setattr(files_module, "fdatasync", lambda _: calls.append("fdatasync"))
    files.sync_many(made)
    files.sync_many(made[:2])
    assert calls == ["syncfs", "fdatasync", "fdatasync"]


def test_the_real_sync_of_many_files(tmp_path: Path) -> None:
    files = DiskFiles()
    made = [files.create(str(tmp_path / str(number))) for number in range(6)]
    for file in made:
        file.pin()
    files.sync_many(made)


def test_a_lock_excludes_others_in_this_process_and_in_others(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = DiskFiles().lock(path)
    with pytest.raises(DataDirectoryLocked, match="another broker in this process"):
        DiskFiles().lock(path)
    script = f"from odradek.storage.disk.files import DiskFiles; DiskFiles().lock({path!r})"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert f"in use by another process (pid {os.getpid()})" in other.stderr
    lock.release()
    DiskFiles().lock(path).release()
    subprocess.run([sys.executable, "-c", script], check=True)


def test_listing_a_directory(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_bytes(b"12345")
    assert DiskFiles().list(str(tmp_path)) == [("directory", True, 0), ("file", False, 5)]


@pytest.mark.parametrize("files", [DiskFiles(), SimulatedFiles()], ids=["disk", "simulated"])
def test_a_directory_is_listed_by_name_on_every_disk(files: Files, tmp_path: Path) -> None:
    names = [f"{number:02}" for number in range(40)]
    files.make_directory(str(tmp_path))
    for name in [*names[1::2], *names[::2]]:
        files.create(f"{tmp_path}/{name}").close()
    assert [entry.name for entry in files.list(str(tmp_path))] == names
