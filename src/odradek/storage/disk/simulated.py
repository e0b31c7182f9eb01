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
from itertools import pairwise

from odradek.records.batch import Buffer
from odradek.storage.disk.files import DEFAULT_MAX_OPEN_FILES, DataDirectoryLocked, DirectoryEntry, File
from odradek.storage.disk.shortage import CannotOpen

PAGE_BYTES = 64  # 4,096 on a real disk; small pages also tear small batches


class PowerCut(BaseException):
    """The machine is off: no code may catch this."""


class _Data:
    """A file's bytes: as reads see them, as they are on disk, and the changes in between (None: to this size)."""

    def __init__(self) -> None:
        self.seen = bytearray()
        self.durable = bytearray()
        self.changes: list[tuple[int, bytes | None]] = []

    def change(self, position: int, data: bytes | None) -> None:
        _apply(self.seen, position, data)
        self.changes.append((position, data))

    def sync(self) -> None:
        for position, data in self.changes:
            _apply(self.durable, position, data)
        self.changes.clear()

    def fail(self) -> None:
        """Lose what was written; keep where the file was cut."""
        self.changes = [(position, data) for position, data in self.changes if data is None]

    @property
    def unsynced_bytes(self) -> int:
        return sum(len(data) for _, data in self.changes if data is not None)

    def crash(self, rng: random.Random | None, is_scattered: bool) -> int:
        """Returns how many bytes survived although they were not synced."""
        kept = _kept_writes(self.changes, rng, is_scattered) if rng and self.changes else []
        for position, data in kept:
            _apply(self.durable, position, data)
        self.changes.clear()
        if self.seen != self.durable:
            self.seen = bytearray(self.durable)
        return sum(len(data) for _, data in kept if data is not None)


def _kept_writes(
    changes: list[tuple[int, bytes | None]], rng: random.Random, is_scattered: bool
) -> list[tuple[int, bytes | None]]:
    if not is_scattered:
        count = rng.randrange(len(changes) + 1)
        kept = changes[:count]
        if count < len(changes):
            position, torn = changes[count]
            if torn is not None:
                kept.append((position, torn[: rng.randrange(len(torn) + 1)]))
        return kept
    kept = []
    for position, data in changes:
        chance = rng.random()
        if chance < 0.3:
            kept.append((position, data))
        elif data is None:
            break
        elif chance < 0.8:
            kept += [page for page in _pages(position, data) if rng.random() < 0.75]
    return kept


def _pages(position: int, data: bytes) -> list[tuple[int, bytes]]:
    """A write as a disk takes it: page by page, each on disk or not."""
    ends = range(position // PAGE_BYTES * PAGE_BYTES + PAGE_BYTES, position + len(data), PAGE_BYTES)
    bounds = [position, *ends, position + len(data)]
    return [(start, data[start - position : end - position]) for start, end in pairwise(bounds)]


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        del content[position:]
    else:
        content.extend(bytes(max(0, position - len(content))))
        content[position : position + len(data)] = data


class _Directory:
    """Names of files and directories: as they are seen, as they are on disk, and the changes in between.

    A change is a name and what becomes of it: a file or a directory, None (it is gone), or its new name.
    """

    def __init__(self) -> None:
        self.seen: dict[str, _Data | _Directory] = {}
        self.durable: dict[str, _Data | _Directory] = {}
        self.changes: list[tuple[str, _Data | _Directory | str | None]] = []

    def change(self, name: str, to: "_Data | _Directory | str | None") -> None:
        _apply_name(self.seen, name, to)
        self.changes.append((name, to))

    def sync(self) -> None:
        for name, to in self.changes:
            _apply_name(self.durable, name, to)
        self.changes.clear()

    def fail(self) -> None:
        self.changes.clear()

    @property
    def unsynced_bytes(self) -> int:
        return sum(node.unsynced_bytes for node in self.seen.values())

    def crash(self, rng: random.Random | None, is_scattered: bool) -> int:
        """Returns how many bytes survived although they were not synced."""
        if self.changes:
            for name, to in self._kept(rng, is_scattered) if rng else ():
                _apply_name(self.durable, name, to)
            self.changes.clear()
        self.seen = dict(self.durable)
        return sum(node.crash(rng, is_scattered) for node in self.seen.values())

    def _kept(
        self, rng: random.Random, is_scattered: bool
    ) -> "list[tuple[str, _Data | _Directory | str | None]]":
        if not is_scattered:
            return self.changes[: rng.randrange(len(self.changes) + 1)]
        kept = []
        lost: set[str] = set()
        for name, to in self.changes:
            names = {name, to} if isinstance(to, str) else {name}
            if rng.random() < 0.5 and not names & lost:
                kept.append((name, to))
            else:
                lost |= names
        return kept


def _apply_name(names: dict[str, _Data | _Directory], name: str, to: _Data | _Directory | str | None) -> None:
    if not (to is None or isinstance(to, str)):
        names[name] = to
    elif (node := names.pop(name, None)) is not None and to is not None:  # lost if its sync failed
        names[to] = node


class SimulatedFile:
    __slots__ = ("_data", "_files", "_pins", "_shortages", "path")

    def __init__(self, files: "SimulatedFiles", path: str) -> None:
        self._files = files
        self.path = path
        self._data: _Data | None = None
        self._pins = 0
        self._shortages = files.shortages  # when it was opened; each one closes what is not pinned

    def _open(self) -> _Data:
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
        self._node: _Data | _Directory | None = None

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
        self._root = _Directory()
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
        other._root, self._root = self._root, _Directory()
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
        return {name: bytes(node.durable) for name, node in names.items() if isinstance(node, _Data)}

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

    def sync_data(self, node: _Data | _Directory) -> None:
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
            self.is_shut_down = isinstance(node, _Directory)
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
        data = _Data()
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
                name, isinstance(node, _Directory), 0 if isinstance(node, _Directory) else len(node.seen)
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
                node.change(name, _Directory())
            child = node.seen[name]
            assert isinstance(child, _Directory)
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

    def data(self, path: str) -> _Data:
        directory, name = self._parent(path)
        node = directory.seen.get(name)
        if not isinstance(node, _Data):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        above, _, name = path.rpartition("/")
        return self._directory(above), name

    def _directory(self, path: str) -> _Directory:
        node = self.find(path)
        assert isinstance(node, _Directory)
        return node

    def find(self, path: str) -> _Data | _Directory:
        if self.is_off:
            raise PowerCut
        node: _Data | _Directory = self._root
        for name in _parts(path):
            child = node.seen.get(name) if isinstance(node, _Directory) else None
            if child is None:
                raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
            node = child
        return node


def _contents(directory: _Directory, path: str) -> Iterator[tuple[str, bytes]]:
    for name, node in directory.seen.items():
        if isinstance(node, _Directory):
            yield from _contents(node, f"{path}/{name}")
        else:
            yield f"{path}/{name}", bytes(node.seen)


def _parts(path: str) -> Iterator[str]:
    return (name for name in path.split("/") if name)
