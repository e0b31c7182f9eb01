"""The lossy disk: after a power cut its real files are what the simulated disk says they must be."""

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.storage.disk.files import Files
from odradek.storage.disk.lossy import LossyFiles
from odradek.storage.disk.simulated import SimulatedFiles


def lossy(root: Path) -> LossyFiles:
    return LossyFiles(str(root / "data"), str(root / "aside"))


def on_disk(top: Path) -> dict[str, bytes]:
    return {f"/{path.relative_to(top)}": path.read_bytes() for path in top.rglob("*") if path.is_file()}


def create(files: Files, path: str, data: bytes) -> None:
    file = files.create(path)
    file.write_at(0, data)
    file.sync()
    file.close()


@pytest.fixture
def files(tmp_path: Path) -> LossyFiles:
    (tmp_path / "data").mkdir()
    files = lossy(tmp_path)
    create(files, f"{tmp_path}/data/file", b"kept")
    files.sync_directory(f"{tmp_path}/data")
    return files


def test_an_unsynced_write_is_lost_and_what_it_replaced_comes_back(files: LossyFiles, tmp_path: Path) -> None:
    file = files.file(f"{tmp_path}/data/file")
    file.write_at(2, b"lost")
    file.truncate(1)
    file.write_at(0, b"123")
    files.cut_power()
    assert on_disk(tmp_path / "data") == {"/file": b"kept"}


def test_an_unsynced_name_is_lost_with_all_its_data(files: LossyFiles, tmp_path: Path) -> None:
    create(files, f"{tmp_path}/data/nameless", b"synced")
    files.cut_power()
    assert on_disk(tmp_path / "data") == {"/file": b"kept"}


def test_an_unsynced_replacement_is_undone(files: LossyFiles, tmp_path: Path) -> None:
    create(files, f"{tmp_path}/data/file.tmp", b"new")
    files.rename(f"{tmp_path}/data/file.tmp", f"{tmp_path}/data/file")
    assert files.read(f"{tmp_path}/data/file") == b"new"
    files.cut_power()
    assert on_disk(tmp_path / "data") == {"/file": b"kept"}


def test_what_another_process_made_is_there_once_the_directory_is_synced(
    files: LossyFiles, tmp_path: Path
) -> None:
    """Write like the compacting process, which syncs the files it makes."""
    (tmp_path / "data" / "first.cleaned").write_bytes(b"1")
    files.rename(f"{tmp_path}/data/first.cleaned", f"{tmp_path}/data/first")
    files.sync_directory(f"{tmp_path}/data")
    (tmp_path / "data" / "second.cleaned").write_bytes(b"2")
    files.cut_power()
    assert on_disk(tmp_path / "data") == {"/file": b"kept", "/first": b"1"}


def test_what_was_there_at_the_start_counts_as_synced(tmp_path: Path) -> None:
    (tmp_path / "data" / "inner").mkdir(parents=True)
    (tmp_path / "data" / "inner" / "file").write_bytes(b"old")
    files = lossy(tmp_path)
    files.remove_tree(f"{tmp_path}/data/inner")
    assert on_disk(tmp_path / "data") == {}
    files.cut_power()
    assert on_disk(tmp_path / "data") == {"/inner/file": b"old"}


def test_what_was_removed_for_good_is_not_kept_aside(files: LossyFiles, tmp_path: Path) -> None:
    files.make_directory(f"{tmp_path}/data/inner")
    create(files, f"{tmp_path}/data/inner/file", b"x")
    files.sync_directory(f"{tmp_path}/data/inner")
    files.sync_directory(f"{tmp_path}/data")
    files.file(f"{tmp_path}/data/inner/file").remove()
    files.remove(f"{tmp_path}/data/file")
    files.remove_tree(f"{tmp_path}/data/inner")
    assert len(os.listdir(tmp_path / "aside")) == 3
    files.sync_directory(f"{tmp_path}/data")
    assert os.listdir(tmp_path / "aside") == []


def test_held_syncs_wait_outside_the_event_loop_only(files: LossyFiles, tmp_path: Path) -> None:
    path = f"{tmp_path}/data/file"
    held = threading.Event()
    files.hold_syncs(held.set)
    files.file(path).write_at(4, b" and lost")
    done = threading.Event()

    def sync() -> None:
        files.file(path).sync()
        done.set()

    thread = threading.Thread(target=sync)
    thread.start()
    assert held.wait(60)
    assert not done.is_set()
    create(files, f"{tmp_path}/data/other", b"")  # on this thread, which stands for the event loop
    files.release_syncs()
    thread.join(60)
    assert done.is_set()
    files.cut_power()
    assert files.read(path) == b"kept and lost"


class Twins:
    """The same operations on a lossy and on a simulated disk."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.rng = random.Random(seed)
        self.simulated = SimulatedFiles()
        for directory in ("/data", "/data/a", "/data/b"):
            self.simulated.make_directory(directory)
            (root / directory[1:]).mkdir()
        for directory in ("/data", "/"):
            self.simulated.sync_directory(directory)
        self.lossy = lossy(root)

    def both(self, act: Callable[[Files, str], None]) -> None:
        act(self.simulated, "")
        act(self.lossy, str(self.root))

    def path(self) -> str:
        return f"/data/{self.rng.choice('ab')}/{self.rng.randrange(4)}"

    def step(self) -> None:
        path, other, data = self.path(), self.rng.randrange(4), self.rng.randbytes(self.rng.randrange(1, 9))
        directory = os.path.dirname(path)
        exists = self.simulated.exists(path)
        match self.rng.randrange(9):
            case 0:
                self.both(lambda files, root: files.create(root + path).close())
            case 1 | 2 if exists:
                end = self.simulated.file(path).size()
                position = self.rng.randrange(end + 1)
                self.both(lambda files, root: files.file(root + path).write_at(position, data))
            case 3 if exists:
                size = self.rng.randrange(self.simulated.file(path).size() + 1)
                self.both(lambda files, root: files.file(root + path).truncate(size))
            case 4 if exists:
                self.both(lambda files, root: files.file(root + path).sync())
            case 5 if exists:
                self.both(lambda files, root: files.file(root + path).remove())
            case 6 if exists and path != f"{directory}/{other}":
                self.both(lambda files, root: files.rename(root + path, f"{root}{directory}/{other}"))
            case 7:
                self.both(lambda files, root: files.to_sync(root + directory).sync())
            case 8 if self.rng.random() < 0.2:
                self.change_directory(directory)

    def change_directory(self, directory: str) -> None:
        """Remove it and make it again, with or without a trace on disk."""
        self.both(lambda files, root: files.remove_tree(root + directory))
        if self.rng.random() < 0.5:
            self.both(lambda files, root: files.sync_directory(f"{root}/data"))
        self.both(lambda files, root: files.make_directory(root + directory))
        if self.rng.random() < 0.5:
            self.both(lambda files, root: files.sync_directory(f"{root}/data"))

    def cut_power(self) -> None:
        self.simulated.crash()
        self.lossy.cut_power()
        seen = on_disk(self.root)
        assert seen == self.simulated.contents()
        assert not (self.root / "aside").exists()
        self.lossy = lossy(self.root)
        for directory in ("/data/a", "/data/b"):
            self.both(lambda files, root, directory=directory: files.make_directory(root + directory))


@pytest.mark.parametrize("seed", range(30))
def test_a_power_cut_leaves_what_the_simulated_disk_keeps(tmp_path: Path, seed: int) -> None:
    twins = Twins(tmp_path, seed)
    for _ in range(4):
        for _ in range(60):
            twins.step()
            assert on_disk(tmp_path / "data") == {
                path.removeprefix("/data"): data for path, data in twins.simulated.contents().items()
            }
        twins.cut_power()
