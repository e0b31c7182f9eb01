"""A disk in memory that forgets what was not synced, for tests and the simulator.

Reads see a write at once; it is durable once its file is synced. A file's name is durable once its
directory is: creating, renaming and removing are changes to a directory like writes to a file. `crash`
throws away what is not durable, or, given `rng`, keeps the changes of each file and directory up to a
random one, which may be torn. With `is_scattered`, it keeps any of them: a write may be on disk though an earlier
one to the same file is not, any pages of a write though others are not, and one name may be renamed though another,
renamed before, is not. Only changes to the same name keep their order, and nothing survives a lost truncation of its
file.

`cut_power` is a crash under a running broker: the disk continues as a new object, and any use of the old one raises
`PowerCut`, which is not an `Exception`. `on_change` and `on_sync` may call it in the middle of anything.

Errors: `free_bytes` makes the disk full when used up; `fail_syncs` lets the next syncs fail. A failed sync
of a file loses what was written to it, though reads still see it, and the one after it succeeds, as Linux has it:
whoever tries again is fooled. The size of a file that was cut, and names, are in the file system's journal. If that
cannot be written, which is what a failed sync of a directory means, the file system shuts down: nothing can be changed
or synced before the machine was off. `run_out_of_descriptors` closes all files but pinned ones and lets nothing be
opened, at once or after a few more, until `free_descriptors`.
"""

import copy
import errno
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from odradek.records.batch import Buffer
from odradek.storage.disk.files import DEFAULT_MAX_OPEN_FILES, DataDirectoryLocked, DirectoryEntry, File
from odradek.storage.disk.shortage import CannotOpen
from odradek.storage.disk.simulated_nodes import Data, Directory


class PowerCut(BaseException):
    """The machine is off: no code may catch this."""


class SimulatedFile:
    __slots__ = ("_data", "_files", "_pins", "_shortages", "path")

    def __init__(self, files: "SimulatedFiles", path: str) -> None:
        self._files = files
        self.path = path
        self._data: Data | None = None
        self._pins = 0
        self._shortages = files.shortages  # when it was opened; each one closes what is not pinned

    def _open(self) -> Data:
        """Like a descriptor: stays with the file, not with the name."""
        if self._files.is_off:
            raise PowerCut
        if self._data is None or (self._shortages != self._files.shortages and not self._pins):
            self._files.take_descriptor(self.path)
            self._data = self._files.data(self.path)
            self._shortages = self._files.shortages
        return self._data

    def size(self) -> int:
        return len(self._open().seen)

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a simulated file has no descriptor", self.path)

    def ensure_open(self) -> None:
        self._open()

    def read_at(self, position: int, length: int) -> bytes:
        return bytes(self._open().seen[position : position + length])

    read_pinned = read_at

    def read_now(self, position: int, length: int) -> bytearray | None:
        data = self._open().seen[position : position + length]
        return bytearray(data) if len(data) == length else None

    def write_at(self, position: int, data: Buffer) -> None:
        content = self._open()
        self._files.about_to_change(self.path)
        fitting = self._files.take_space(max(0, position + len(data) - len(content.seen)))
        missing = max(0, position + len(data) - len(content.seen)) - fitting
        content.change(position, bytes(data[: len(data) - missing]))
        if missing:
            raise OSError(errno.ENOSPC, "no space is left on the simulated disk", self.path)

    def truncate(self, size: int) -> None:
        content = self._open()
        if size < len(content.seen):
            self._files.about_to_change(self.path)
            self._files.give_space(len(content.seen) - size)
            content.change(size, None)

    def sync(self) -> None:
        self._files.sync_data(self._open())

    def pin(self) -> None:
        self._open()
        self._pins += 1

    def unpin(self) -> None:
        self._pins -= 1

    def rename(self, path: str) -> None:
        self._files.rename(self.path, path)
        self.path = path

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            self._files.remove(self.path)

    def close(self) -> None:
        if not self._pins:
            self._data = None


class SimulatedName(SimulatedFile):
    """A file or directory opened only for a sync. While pinned it refers to the same file, like a descriptor."""

    __slots__ = ("_node",)

    def __init__(self, files: "SimulatedFiles", path: str) -> None:
        super().__init__(files, path)
        self._node: Data | Directory | None = None

    def sync(self) -> None:
        if self._node is None:
            self._files.take_descriptor(self.path)
        self._files.sync_data(self._node or self._files.find(self.path))

    def pin(self) -> None:
        if self._node is None:
            self._files.take_descriptor(self.path)
            self._node = self._files.find(self.path)
        self._pins += 1

    def unpin(self) -> None:
        self._pins -= 1
        if not self._pins:
            self._node = None


class SimulatedLock:
    def __init__(self, held: set[str], path: str) -> None:
        if path in held:
            raise DataDirectoryLocked(f"{path} is held by another broker")
        self._held, self._path = held, path
        held.add(path)

    def release(self) -> None:
        self._held.discard(self._path)


class SimulatedFiles:
    """One disk. Paths are absolute and use `/`."""

    syncs_may_block = False

    def __init__(self) -> None:
        self._root = Directory()
        self._locks: set[str] = set()
        self.max_open = DEFAULT_MAX_OPEN_FILES
        self.free_bytes: int | None = None  # None: no limit
        self.fail_syncs = 0
        self.syncs = 0  # how many were asked for
        self.opens_left: int | None = None  # None: no limit
        self.shortages = 0  # how often there were no descriptors
        self.on_sync: Callable[[], None] | None = None  # called before each, where a crash may be tried
        # Called with the path before each write, truncation and change of names.
        self.on_change: Callable[[str], None] | None = None
        self.is_off = False
        self.is_shut_down = False  # its journal could not be written

    # Faults

    def crash(self, rng: random.Random | None = None, is_scattered: bool = False) -> int:
        """Lose what is not durable; every handle and lock from before is invalid. Returns how many written bytes
        are lost."""
        self._locks.clear()
        self.is_shut_down = False
        written = self._root.unsynced_bytes
        return max(0, written - self._root.crash(rng, is_scattered))

    def cut_power(self) -> "SimulatedFiles":
        """The disk, to be crashed and used again; this object must not be used any more."""
        self.is_off = True
        other = SimulatedFiles()
        other._root, self._root = self._root, Directory()
        other.max_open = self.max_open
        other.free_bytes, other.opens_left = self.free_bytes, self.opens_left
        other.is_shut_down = self.is_shut_down
        return other

    def about_to_change(self, path: str) -> None:
        if self.on_change is not None:
            self.on_change(path)
        if self.is_shut_down:
            raise OSError(errno.EROFS, "the simulated file system has shut down", path)

    def twin(self) -> "SimulatedFiles":
        """Another disk in the same state, as a killed process leaves it: every write is visible, no lock is held."""
        other = SimulatedFiles()
        other._root = copy.deepcopy(self._root)
        return other

    def contents(self) -> dict[str, bytes]:
        """Every file as reads see it, by its path."""
        return dict(_contents(self._root, ""))

    def durable(self, directory: str) -> dict[str, bytes]:
        """The files that a crash would leave there for certain, by their names."""
        try:
            names = self._directory(directory).durable
        except FileNotFoundError:
            return {}
        return {name: bytes(node.durable) for name, node in names.items() if isinstance(node, Data)}

    def take_space(self, wanted: int) -> int:
        """Return how many of the wanted bytes fit, and take their space."""
        if self.free_bytes is None:
            return wanted
        given = min(wanted, self.free_bytes)
        self.free_bytes -= given
        return given

    def give_space(self, count: int) -> None:
        if self.free_bytes is not None:
            self.free_bytes += count

    def run_out_of_descriptors(self, after: int = 0) -> None:
        """Take away the descriptors of files that are not pinned; a few more can be opened, and then none."""
        self.opens_left = after
        self.shortages += 1

    def free_descriptors(self) -> None:
        self.opens_left = None

    def take_descriptor(self, path: str) -> None:
        if self.is_off:
            raise PowerCut
        if self.opens_left is not None:
            if self.opens_left == 0:
                raise CannotOpen(errno.EMFILE, "the simulated process has no descriptor left", path)
            self.opens_left -= 1

    def sync_data(self, node: Data | Directory) -> None:
        self.syncs += 1
        if self.is_off:
            raise PowerCut
        if self.on_sync is not None:
            self.on_sync()
        if self.is_shut_down:
            raise OSError(errno.EIO, "the simulated file system has shut down")
        if self.fail_syncs:
            self.fail_syncs -= 1
            node.fail()
            self.is_shut_down = isinstance(node, Directory)
            raise OSError(errno.EIO, "the simulated disk failed to sync")
        node.sync()

    # Files

    def file(self, path: str) -> SimulatedFile:
        return SimulatedFile(self, path)

    def to_sync(self, path: str) -> SimulatedName:
        return SimulatedName(self, path)

    def create(self, path: str) -> SimulatedFile:
        self.take_descriptor(path)
        directory, name = self._parent(path)
        if name in directory.seen:
            file = SimulatedFile(self, path)
            file._data = self.data(path)
            file.truncate(0)
            return file
        data = Data()
        self.about_to_change(path)
        directory.change(name, data)
        file = SimulatedFile(self, path)
        file._data = data
        return file

    def read(self, path: str) -> bytes:
        self.take_descriptor(path)
        return bytes(self.data(path).seen)

    def list(self, directory: str) -> Sequence[DirectoryEntry]:
        self.take_descriptor(directory)
        return sorted(
            DirectoryEntry(
                name, isinstance(node, Directory), 0 if isinstance(node, Directory) else len(node.seen)
            )
            for name, node in self._directory(directory).seen.items()
        )

    def exists(self, path: str) -> bool:
        try:
            self.find(path)
        except FileNotFoundError:
            return False
        return True

    def make_directory(self, path: str, mode: int = 0o777) -> None:
        node = self._root
        for name in _parts(path):
            if name not in node.seen:
                self.about_to_change(path)
                node.change(name, Directory())
            child = node.seen[name]
            assert isinstance(child, Directory)
            node = child

    def rename(self, old: str, new: str) -> None:
        directory, old_name = self._parent(old)
        other, new_name = self._parent(new)
        assert directory is other, "storage renames within a directory only"
        if old_name not in directory.seen:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self.about_to_change(new)
        directory.change(old_name, new_name)

    def remove(self, path: str) -> None:
        node = self.data(path)
        directory, name = self._parent(path)
        self.about_to_change(path)
        self.give_space(len(node.seen))
        directory.change(name, None)

    def remove_tree(self, directory: str) -> None:
        self.take_descriptor(directory)
        with suppress(FileNotFoundError):
            content = self._directory(directory)
            parent, name = self._parent(directory)
            self.about_to_change(directory)
            self.give_space(sum(len(data) for _, data in _contents(content, "")))
            parent.change(name, None)

    def sync_directory(self, path: str) -> None:
        self.take_descriptor(path)
        self.sync_data(self._directory(path))

    def sync_many(self, files: Sequence[File]) -> None:
        for file in files:
            file.sync()

    def lock(self, path: str) -> SimulatedLock:
        return SimulatedLock(self._locks, path)

    def data(self, path: str) -> Data:
        directory, name = self._parent(path)
        node = directory.seen.get(name)
        if not isinstance(node, Data):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        above, _, name = path.rpartition("/")
        return self._directory(above), name

    def _directory(self, path: str) -> Directory:
        node = self.find(path)
        assert isinstance(node, Directory)
        return node

    def find(self, path: str) -> Data | Directory:
        if self.is_off:
            raise PowerCut
        node: Data | Directory = self._root
        for name in _parts(path):
            child = node.seen.get(name) if isinstance(node, Directory) else None
            if child is None:
                raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
            node = child
        return node


def _contents(directory: Directory, path: str) -> Iterator[tuple[str, bytes]]:
    for name, node in directory.seen.items():
        if isinstance(node, Directory):
            yield from _contents(node, f"{path}/{name}")
        else:
            yield f"{path}/{name}", bytes(node.seen)


def _parts(path: str) -> Iterator[str]:
    return (name for name in path.split("/") if name)
