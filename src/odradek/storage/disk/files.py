"""The few file operations that storage is built on, and how they are done on a real disk.

Everything above this module uses `Files` and `File`, so that the simulator can run the same code on
a disk that loses what was not synced (`simulated.py`).

A `File` is a name, not a descriptor: it is opened when it is first used, and closed again, least recently
used first, when more than `max_open` are open. That way the number of descriptors does not grow with the
number of partitions. A descriptor that `fileno` returned is therefore valid until the next call into this
module, unless the file is pinned; a thread that syncs uses pinned files only.

When the process has no descriptor left, unused files are closed to make room, and then the reserve is used
(`shortage.py`). Only if neither helps does a call raise `CannotOpen`, which means that nothing has happened yet.

There are no memory maps here: reading one after its file was cut short would kill the process.
"""

import ctypes
import errno
import fcntl
import logging
import os
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from odradek.records.batch import Buffer
from odradek.storage.disk.shortage import CannotOpen, Reserve, is_shortage

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

DEFAULT_MAX_OPEN_FILES = 4096
# One fdatasync waits for one file; syncfs waits for a whole file system at once, and costs as much as a few of them.
MAX_SINGLE_SYNCS = 4
# Files to close for one that cannot be opened. One is enough, unless the whole system has no descriptor left.
MAX_EVICTIONS = 8

FLOCK = "hhqqi4x"  # Linux's struct flock: type, whence, start, length, process

READ_AT_ONCE = getattr(os, "RWF_NOWAIT", 0)
fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class DirectoryEntry(NamedTuple):
    name: str
    is_directory: bool
    size: int  # of a file; 0 for a directory


class DataDirectoryLocked(Exception):
    """Another process uses this data directory."""


class Lock(Protocol):
    def release(self) -> None: ...


class File(Protocol):
    path: str

    def size(self) -> int: ...
    def fileno(self) -> int: ...
    def ensure_open(self) -> None:
        """Open it now, while it is still safe to fail for lack of a descriptor."""

    def read_at(self, position: int, length: int) -> bytes:
        """Fewer bytes than asked for only at the end of the file."""

    def read_now(self, position: int, length: int) -> bytearray | None:
        """All of it, if it is there and no byte of it has to be waited for."""

    def read_pinned(self, position: int, length: int) -> bytes:
        """Like `read_at`, of a pinned file: for another thread."""

    def write_at(self, position: int, data: Buffer) -> None:
        """All of it, or an OSError, after which the file may have grown by a part of it."""

    def truncate(self, size: int) -> None: ...
    def sync(self) -> None: ...
    def pin(self) -> None: ...
    def unpin(self) -> None: ...
    def rename(self, path: str) -> None: ...
    def remove(self) -> None:
        """A file that is already gone counts as removed."""

    def close(self) -> None: ...


class Files(Protocol):
    """Every call that opens a file raises `CannotOpen` if there is no descriptor for it."""

    max_open: int  # files that may be open at a time, besides those that are pinned
    syncs_may_block: bool  # for long: then syncs that records wait for are not done on the event loop

    def file(self, path: str) -> File:
        """A handle on a file that exists, or will exist when the handle is first used."""

    def to_sync(self, path: str) -> File:
        """A handle on a file or a directory that is good for syncing, and open only while it is pinned."""

    def create(self, path: str) -> File:
        """A new empty file; one of this name is emptied."""

    def read(self, path: str) -> bytes: ...
    def list(self, directory: str) -> Sequence[DirectoryEntry]:
        """Sorted by name, so that the order is the same on every disk."""

    def exists(self, path: str) -> bool: ...
    def make_directory(self, path: str, mode: int = 0o777) -> None:
        """Also creates its parents, with the usual mode. An existing one is not changed."""

    def rename(self, old: str, new: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_tree(self, directory: str) -> None:
        """A directory that is already gone counts as removed."""

    def sync_directory(self, path: str) -> None: ...
    def sync_many(self, files: Sequence[File]) -> None:
        """Sync all of these; the only operation, with `File.sync`, that may run in another thread."""

    def lock(self, path: str) -> Lock: ...


@contextmanager
def pinned(*files: File) -> Iterator[None]:
    """Open all of these, or none, before work that must not fail half-way for lack of a descriptor."""
    with ExitStack() as stack:
        for file in files:
            file.pin()
            stack.callback(file.unpin)
        yield


class DiskFile:
    """A file on disk, opened when needed. See the module's docstring."""

    __slots__ = ("_descriptor", "_files", "_pins", "_removed", "path")

    FLAGS = os.O_RDWR | os.O_CLOEXEC

    def __init__(self, files: "DiskFiles", path: str) -> None:
        self._files = files
        self.path = path
        self._descriptor = -1
        self._pins = 0
        self._removed = False

    def fileno(self) -> int:
        if self._descriptor < 0:
            if self._removed:
                raise FileNotFoundError(errno.ENOENT, "the file was removed", self.path)
            self._descriptor = self._files.attempt(lambda: os.open(self.path, self.FLAGS), self.path)
            self._files.opened(self)
        else:
            self._files.open_files.move_to_end(self)
        return self._descriptor

    def ensure_open(self) -> None:
        if self._descriptor < 0:
            self.fileno()

    def size(self) -> int:
        return os.fstat(self.fileno()).st_size

    def read_at(self, position: int, length: int) -> bytes:
        return self._read(self.fileno(), position, length)

    def read_pinned(self, position: int, length: int) -> bytes:
        return self._read(self.sync_descriptor(), position, length)

    @staticmethod
    def _read(descriptor: int, position: int, length: int) -> bytes:
        data = os.pread(descriptor, length, position)
        while 0 < len(data) < length:
            more = os.pread(descriptor, length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def read_now(self, position: int, length: int) -> bytearray | None:
        descriptor, data = self.fileno(), bytearray(length)
        try:
            count = os.preadv(descriptor, [data], position, READ_AT_ONCE)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            count = os.preadv(descriptor, [data], position)  # tmpfs: always in memory
        return data if count == length else None

    def write_at(self, position: int, data: Buffer) -> None:
        descriptor = self.fileno()
        written = os.pwrite(descriptor, data, position)
        if written == len(data):
            return
        rest = memoryview(data)
        while written < len(data):
            count = os.pwrite(descriptor, rest[written:], position + written)
            if count == 0:
                raise OSError(errno.EIO, "the disk accepts no more bytes", self.path)
            written += count

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fileno(), size)

    def sync_descriptor(self) -> int:
        """Return the descriptor for another thread, which must not change the order of use of pinned files."""
        return self._descriptor if self._pins else self.fileno()

    def sync(self) -> None:
        fdatasync(self.sync_descriptor())

    def pin(self) -> None:
        self.fileno()
        self._pins += 1

    def unpin(self) -> None:
        self._pins -= 1
        if self._removed:
            self.close()

    @property
    def pinned(self) -> bool:
        return self._pins > 0

    def rename(self, path: str) -> None:
        os.rename(self.path, path)
        self.path = path

    def remove(self) -> None:
        self._removed = True
        self.close()
        with suppress(FileNotFoundError):
            os.unlink(self.path)

    def close(self) -> None:
        if self._descriptor >= 0 and not self._pins:
            self._files.open_files.pop(self, None)
            os.close(self._descriptor)
            self._descriptor = -1


class DiskName(DiskFile):
    """A file or directory opened for a sync alone."""

    __slots__ = ()

    FLAGS = os.O_RDONLY | os.O_CLOEXEC

    def sync(self) -> None:
        if self._pins:
            super().sync()
            return
        self.pin()
        try:
            super().sync()
        finally:
            self.unpin()

    def unpin(self) -> None:
        super().unpin()
        self.close()


class DiskFiles:
    """The real file system. `reserve` descriptors are kept for a moment in which there are no others."""

    syncs_may_block = False

    def __init__(self, max_open: int = DEFAULT_MAX_OPEN_FILES, reserve: int = 0) -> None:
        self.max_open = max_open
        self.open_files: OrderedDict[DiskFile, None] = OrderedDict()
        self._reserve = Reserve(reserve)
        self._is_short = False  # to open the last file, others had to be closed
        self._has_failed = False  # and even that did not help

    # Making room

    def attempt(self, call: Callable[[], Result], path: str) -> Result:
        """Make a call that needs a descriptor; if there is none, make room and try again."""
        try:
            result = call()
        except OSError as error:
            if not is_shortage(error):
                raise
            return self._attempt_with_room(call, path, error)
        if self._is_short:
            self._is_short_no_more()
        return result

    def _attempt_with_room(self, call: Callable[[], Result], path: str, error: OSError) -> Result:
        if not self._is_short:
            self._is_short = True
            logger.warning("out of descriptors: closing idle files to open %s (%s)", path, error.strerror)
        for _ in self._make_room():
            try:
                return call()
            except OSError as again:
                if not is_shortage(again):
                    raise
                error = again
        if not self._has_failed:
            self._has_failed = True
            logger.error(
                "cannot open %s: %s. Requests that need it fail until descriptors are free; "
                "if this happens again, raise the limit (ulimit -n)",
                path,
                error.strerror,
            )
        raise CannotOpen(error.errno, error.strerror, path) from error

    def _make_room(self) -> Iterator[None]:
        """Free one descriptor after the other, as long as the caller asks for more."""
        for _ in range(MAX_EVICTIONS):
            if not self._close_an_idle_file():
                break
            yield
        while self._reserve.give_one():
            yield

    def _close_an_idle_file(self) -> bool:
        for file in self.open_files:
            if not file.pinned:
                file.close()
                return True
        return False

    def _is_short_no_more(self) -> None:
        self._reserve.refill()
        if self._has_failed:
            logger.info("descriptors are free again, so files can be opened")
        self._is_short = self._has_failed = False

    # Files

    def opened(self, file: DiskFile) -> None:
        """Note that a file was opened, and close others if there are too many."""
        self.open_files[file] = None
        excess = len(self.open_files) - self.max_open
        if excess > 0:
            for candidate in list(islice(self.open_files, excess + 16)):
                if excess > 0 and candidate is not file and not candidate.pinned:
                    candidate.close()
                    excess -= 1

    def file(self, path: str) -> DiskFile:
        return DiskFile(self, path)

    def to_sync(self, path: str) -> DiskName:
        return DiskName(self, path)

    def create(self, path: str) -> DiskFile:
        file = self.file(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        file._descriptor = self.attempt(lambda: os.open(path, flags, 0o644), path)
        self.opened(file)
        return file

    def read(self, path: str) -> bytes:
        descriptor = self.attempt(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)
        try:
            size = os.fstat(descriptor).st_size
            return os.pread(descriptor, size, 0) if size else b""
        finally:
            os.close(descriptor)

    def list(self, directory: str) -> Sequence[DirectoryEntry]:
        with self.attempt(lambda: os.scandir(directory), directory) as entries:
            return sorted(
                DirectoryEntry(
                    entry.name, is_directory := entry.is_dir(), 0 if is_directory else entry.stat().st_size
                )
                for entry in entries
            )

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def make_directory(self, path: str, mode: int = 0o777) -> None:
        os.makedirs(path, mode, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, directory: str) -> None:
        try:
            self.attempt(lambda: _remove_tree(directory), directory)
        except FileNotFoundError:
            if os.path.lexists(directory):
                raise

    def sync_directory(self, path: str) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        descriptor = self.attempt(lambda: os.open(path, flags), path)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_many(self, files: Sequence[File]) -> None:
        if len(files) > MAX_SINGLE_SYNCS and syncfs is not None:
            first = files[0]
            assert isinstance(first, DiskFile)
            syncfs(first.sync_descriptor())
            return
        for file in files:
            file.sync()

    def lock(self, path: str) -> "DiskLock":
        return DiskLock(path)


class DiskLock:
    """A lock on a data directory's `.lock`. POSIX locks as Kafka takes them, so the two exclude each other."""

    # A process does not exclude itself with POSIX locks: two brokers in one test would not notice each other.
    held_here: set[str] = set()

    def __init__(self, path: str) -> None:
        self._key = os.path.realpath(path)
        if self._key in self.held_here:
            raise DataDirectoryLocked(f"{path} is in use by another broker in this process")
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = self._holder()
            os.close(self._descriptor)
            raise DataDirectoryLocked(
                f"{path} is in use by another process{holder}: only one broker at a time can use a data directory"
            ) from error
        self.held_here.add(self._key)

    def _holder(self) -> str:
        """Words that name the process that has the lock; empty if the system does not tell us."""
        if not READ_AT_ONCE:  # not Linux
            return ""
        try:
            asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            pid = struct.unpack(FLOCK, fcntl.fcntl(self._descriptor, fcntl.F_GETLK, asked))[-1]
        except (OSError, struct.error):
            return ""
        return f" (pid {pid})" if pid > 0 else ""

    def release(self) -> None:
        self.held_here.discard(self._key)
        os.close(self._descriptor)


def _remove_tree(directory: str) -> None:
    import shutil  # with archives of all kinds, so not before it is needed

    shutil.rmtree(directory)


def _load_syncfs() -> Callable[[int], None] | None:
    """Python does not offer syncfs. Since Linux 5.8 it reports write-back errors as fsync does."""
    try:
        function = ctypes.CDLL(None, use_errno=True).syncfs
    except (AttributeError, OSError):
        return None
    function.argtypes = [ctypes.c_int]

    def syncfs(descriptor: int) -> None:
        if function(descriptor) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    return syncfs


syncfs = _load_syncfs()
