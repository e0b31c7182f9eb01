"""Files and directories of the simulated disk: what reads see, what is on disk, and what a crash keeps of the rest."""

import random
from itertools import pairwise

PAGE_BYTES = 64  # 4,096 on a real disk; small pages also tear small batches


class Data:
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


class Directory:
    """Names of files and directories: as they are seen, as they are on disk, and the changes in between.

    A change is a name and what becomes of it: a file or a directory, None (it is gone), or its new name.
    """

    def __init__(self) -> None:
        self.seen: dict[str, Data | Directory] = {}
        self.durable: dict[str, Data | Directory] = {}
        self.changes: list[tuple[str, Data | Directory | str | None]] = []

    def change(self, name: str, to: "Data | Directory | str | None") -> None:
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
    ) -> "list[tuple[str, Data | Directory | str | None]]":
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


def _apply_name(names: dict[str, Data | Directory], name: str, to: Data | Directory | str | None) -> None:
    if not (to is None or isinstance(to, str)):
        names[name] = to
    elif (node := names.pop(name, None)) is not None and to is not None:  # lost if its sync failed
        names[to] = node
