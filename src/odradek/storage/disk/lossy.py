"""A real disk that can lose what was not synced, to test power cuts (`odradek.testing`).

The files are real, so everything above works as usual. In addition `LossyFiles` remembers what is certainly on disk:
the names in each directory when it was last synced, and, for each file written since its last sync, its size then and
the bytes that were overwritten. `cut_power` rebuilds the data directory from that. The rules are those
of `simulated`: a file's bytes are durable once it is synced, its name once its directory is.

Files and directories are identified by their inode number, because names change. One that was removed, or replaced by a
rename, while its directory on disk still has its name, is moved to a private directory, so that it can come back and
its number is not reused.

What was on disk when the process started counts as durable. A sync is only noted: the real disk is not asked to
sync, since the data of a test does not outlive the machine. `hold_syncs` makes all syncs outside the event loop wait,
`fill` makes every write fail that needs space.
"""

import errno
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from odradek.records.batch import Buffer
from odradek.storage.disk.files import DEFAULT_MAX_OPEN_FILES, DiskFile, DiskFiles, DiskName, File


class _Unsynced:
    """The changes to a file since its last sync, to be undone: write the saved bytes, last first, and cut to `size`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.saved: list[tuple[int, bytes]] = []

    def save(self, descriptor: int, position: int, end: int) -> None:
        """Bytes that are about to change, as far as they are durable."""
        end = min(end, self.size)
        if position < end:
            self.saved.append((position, os.pread(descriptor, end - position, position)))

    def undo(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            for position, data in reversed(self.saved):
                os.pwrite(descriptor, data, position)
            os.ftruncate(descriptor, self.size)
        finally:
            os.close(descriptor)


class LossyFile(DiskFile):
    __slots__ = ()

    _files: "LossyFiles"

    def write_at(self, position: int, data: Buffer) -> None:
        with self._files.lock_model:
            if self._files.free_bytes is not None:
                self._files.take_space(self.path, max(position + len(data) - self.size(), 0))
            self._files.changing(self.fileno(), position, position + len(data))
            super().write_at(position, data)

    def truncate(self, size: int) -> None:
        with self._files.lock_model:
            descriptor = self.fileno()
            before = os.fstat(descriptor).st_size
            self._files.changing(descriptor, size, before)
            self._files.give_space(before - size)
            super().truncate(size)

    def sync(self) -> None:
        self._files.synced(os.fstat(self.sync_descriptor()).st_ino)

    def rename(self, path: str) -> None:
        self._files.rename(self.path, path)
        self.path = path

    def remove(self) -> None:
        with self._files.lock_model:
            self._files.set_aside(self.path)
            super().remove()


class LossyName(DiskName):
    """A file or directory opened for a sync alone."""

    __slots__ = ()

    _files: "LossyFiles"

    def sync(self) -> None:
        if self._pins:  # by its descriptor: in another thread its name may be changing just now
            self._files.sync_descriptor(self._descriptor)
        else:
            self._files.sync_path(self.path)


class LossyFiles(DiskFiles):
    """`directory` is affected by a power cut; `aside` is a private directory on the same file system."""

    syncs_may_block = True

    def __init__(
        self, directory: str, aside: str, max_open: int = DEFAULT_MAX_OPEN_FILES, reserve: int = 0
    ) -> None:
        super().__init__(max_open, reserve)
        self.lock_model = threading.RLock()  # syncs run in other threads
        self._directory = directory
        self._aside = aside
        self._names: dict[int, dict[str, int]] = {}  # by directory: the names it has on disk
        self._unsynced: dict[int, _Unsynced] = {}  # by file
        self._set_aside: dict[int, tuple[str, int]] = {}  # where it is now, and the directory it was in
        self._may_sync = threading.Event()
        self._may_sync.set()
        self._on_held: Callable[[], None] = lambda: None
        self.free_bytes: int | None = None  # None: whatever the disk has
        self._on_full: Callable[[], None] = lambda: None
        self._event_loop_thread = threading.get_ident()
        shutil.rmtree(aside, ignore_errors=True)
        os.makedirs(aside)
        if os.path.isdir(directory):
            for path, _, _ in os.walk(directory):
                self._names[_inode(path)] = _listing(path)

    # --- faults ---

    def hold_syncs(self, on_held: Callable[[], None] = lambda: None) -> None:
        """Let syncs wait until `release_syncs`: those of the flusher, which records wait for. The few that are done
        on the event loop (a new topic, a roll, a checkpoint) are not held, or the broker would hang.

        `on_held` is called for each that waits, in its thread."""
        with self.lock_model:  # when this returns, none is under way
            self._may_sync.clear()
            self._on_held = on_held

    def release_syncs(self) -> None:
        self._may_sync.set()

    def fill(self, on_full: Callable[[], None] = lambda: None) -> None:
        """Leave no space for files to grow, but what others free, until `free`. `on_full` is called for each write that
        fails."""
        self.free_bytes, self._on_full = 0, on_full

    def free(self) -> None:
        self.free_bytes = None

    def take_space(self, path: str, wanted: int) -> None:
        if self.free_bytes is None or wanted == 0:
            return
        if wanted > self.free_bytes:
            self._on_full()
            raise OSError(errno.ENOSPC, "the test has filled this disk", path)
        self.free_bytes -= wanted

    def give_space(self, count: int) -> None:
        if self.free_bytes is not None:
            self.free_bytes += count

    def cut_power(self) -> None:
        """Lose what is not durable. Every handle from before is invalid: the process must exit at once."""
        with self.lock_model:
            paths = {_inode(path): path for top in (self._directory, self._aside) for path in _files_in(top)}
            durable = f"{self._directory}.durable"
            shutil.rmtree(durable, ignore_errors=True)
            self._rebuild(_inode(self._directory), durable, paths)
            shutil.copymode(self._directory, durable)
            lost = f"{self._directory}.lost"
            os.rename(self._directory, lost)
            os.rename(durable, self._directory)
            shutil.rmtree(self._aside)
            shutil.rmtree(lost, ignore_errors=True)  # another process may still be compacting a log in it

    def _rebuild(self, directory: int, path: str, paths: dict[int, str]) -> None:
        os.mkdir(path)
        for name, inode in self._names[directory].items():
            target = os.path.join(path, name)
            if inode in self._names:
                self._rebuild(inode, target, paths)
            else:
                if unsynced := self._unsynced.pop(inode, None):
                    unsynced.undo(paths[inode])
                os.link(paths[inode], target)

    # --- what is durable ---

    def changing(self, descriptor: int, position: int, end: int) -> None:
        """Bytes of an open file are about to be written, or cut off."""
        status = os.fstat(descriptor)
        if status.st_nlink:
            unsynced = self._unsynced.setdefault(status.st_ino, _Unsynced(status.st_size))
            unsynced.save(descriptor, position, end)

    def synced(self, inode: int) -> None:
        with self._syncing():
            self._unsynced.pop(inode, None)

    def sync_path(self, path: str) -> None:
        descriptor = self.attempt(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)
        try:
            self.sync_descriptor(descriptor)
        finally:
            os.close(descriptor)

    sync_directory = sync_path

    def sync_descriptor(self, descriptor: int) -> None:
        """Sync a file or a directory."""
        status = os.fstat(descriptor)
        if not stat.S_ISDIR(status.st_mode):
            self.synced(status.st_ino)
            return
        with self._syncing(), os.scandir(descriptor) as entries:
            names = {}
            for entry in entries:
                names[entry.name] = inode = entry.stat(follow_symlinks=False).st_ino
                if entry.is_dir():
                    self._names.setdefault(inode, {})
            self._names[status.st_ino] = names
            self._bury(status.st_ino)

    @contextmanager
    def _syncing(self) -> Iterator[None]:
        """Once syncs are not held, unless this is the event loop."""
        may_wait = threading.get_ident() != self._event_loop_thread
        while True:
            if may_wait and not self._may_sync.is_set():
                self._on_held()
                self._may_sync.wait()
            with self.lock_model:
                if self._may_sync.is_set() or not may_wait:
                    yield
                    return

    def set_aside(self, path: str) -> None:
        """This name of a file is about to go: keep the file, if the disk still has it under some name."""
        try:
            inode = _inode(path)
        except FileNotFoundError:
            return
        self.give_space(os.path.getsize(path))
        directory = _inode(os.path.dirname(path))
        if inode not in self._names.get(directory, {}).values():
            self._unsynced.pop(inode, None)
        elif inode not in self._set_aside:
            kept = os.path.join(self._aside, str(inode))
            os.link(path, kept)
            self._set_aside[inode] = kept, directory

    def _bury(self, directory: int) -> None:
        """Remove files that were set aside from a directory and no longer have a name in it."""
        names = self._names.get(directory, {}).values()
        gone = [inode for inode, (_, of) in self._set_aside.items() if of == directory and inode not in names]
        for inode in gone:
            path, _ = self._set_aside.pop(inode)
            if os.path.isdir(path):
                self._forget_tree(path)
                shutil.rmtree(path)
            else:
                os.unlink(path)
                self._unsynced.pop(inode, None)

    def _forget_tree(self, top: str) -> None:
        for path, _, files in os.walk(top):
            for name in files:
                self._unsynced.pop(_inode(os.path.join(path, name)), None)
            directory = _inode(path)
            self._names.pop(directory, None)
            self._bury(directory)

    # --- files ---

    def file(self, path: str) -> LossyFile:
        return LossyFile(self, path)

    def to_sync(self, path: str) -> LossyName:
        return LossyName(self, path)

    def create(self, path: str) -> DiskFile:
        with self.lock_model:
            if os.path.exists(path):
                emptied = self.file(path)
                emptied.truncate(0)
                emptied.close()
                return super().create(path)
            file = super().create(path)
            self._unsynced[os.fstat(file.fileno()).st_ino] = _Unsynced(0)
            return file

    def make_directory(self, path: str, mode: int = 0o777) -> None:
        with self.lock_model:
            missing = path
            made = []
            while not os.path.isdir(missing):
                made.append(missing)
                missing = os.path.dirname(missing)
            super().make_directory(path, mode)
            for directory in made:
                self._names[_inode(directory)] = {}

    def rename(self, old: str, new: str) -> None:
        with self.lock_model:
            if os.path.isfile(new):
                self.set_aside(new)
            super().rename(old, new)

    def remove(self, path: str) -> None:
        with self.lock_model:
            self.set_aside(path)
            super().remove(path)

    def remove_tree(self, directory: str) -> None:
        with self.lock_model:
            if not os.path.isdir(directory):
                return
            inode, above = _inode(directory), _inode(os.path.dirname(directory))
            kept = os.path.join(self._aside, str(inode))
            os.rename(directory, kept)
            self._set_aside[inode] = kept, above
            if inode not in self._names.get(above, {}).values():
                self._bury(above)

    def sync_many(self, files: Sequence[File]) -> None:
        for file in files:
            file.sync()


def _inode(path: str) -> int:
    return os.stat(path).st_ino


def _listing(directory: str) -> dict[str, int]:
    with os.scandir(directory) as entries:
        return {entry.name: entry.stat(follow_symlinks=False).st_ino for entry in entries}


def _files_in(top: str) -> Iterator[str]:
    for path, _, names in os.walk(top):
        for name in names:
            yield os.path.join(path, name)
