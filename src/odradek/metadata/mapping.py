"""Immutable mappings of which the next version costs what changed, and not what there is.

A small mapping is a plain dictionary, and its next version a changed copy. A large one is a dictionary that
all its versions share, and the few entries that differ from it: the next version copies those alone. Once
they are more than the square root of what is shared, they are folded into a new dictionary, so that n entries
cost about √n for each change, and reading looks into two dictionaries at most.

Entries come in the order of the shared dictionary, new ones behind. It does not depend on the hash of a key.
No value is None.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")

SMALL = 64  # a copy of so many entries costs less than to look into two dictionaries


class Gone(Enum):
    """Stands for a value in changes: there is no such key any more."""

    GONE = 0


GONE = Gone.GONE


def with_changes(before: Mapping[K, V], changes: Mapping[K, "V | Gone"]) -> Mapping[K, V]:
    """The next version; nobody may change `before` or what it was made from."""
    if not changes:
        return before
    if isinstance(before, LayeredMap):
        base, changes = before.base, {**before.changes, **changes}
    else:
        base = before
    if len(base) <= SMALL or len(changes) ** 2 > len(base):
        return _fold(base, changes)
    return LayeredMap(base, dict(changes))


def _fold(base: Mapping[K, V], changes: Mapping[K, "V | Gone"]) -> dict[K, V]:
    folded = dict(base)
    for key, value in changes.items():
        if value is GONE:
            folded.pop(key, None)
        else:
            folded[key] = value
    return folded


class LayeredMap(Mapping[K, V]):
    __slots__ = ("_length", "base", "changes")

    def __init__(self, base: Mapping[K, V], changes: Mapping[K, "V | Gone"]) -> None:
        self.base = base
        self.changes = changes
        gone = sum(1 for key, value in changes.items() if value is GONE and key in base)
        new = sum(1 for key, value in changes.items() if value is not GONE and key not in base)
        self._length = len(base) - gone + new

    def __getitem__(self, key: K) -> V:
        value = self.changes.get(key)
        if value is None:
            return self.base[key]
        if value is GONE:
            raise KeyError(key)
        return value

    def get(self, key: K, default: Any = None) -> Any:
        value = self.changes.get(key)
        if value is None:
            return self.base.get(key, default)
        return default if value is GONE else value

    def __contains__(self, key: object) -> bool:
        value = self.changes.get(key)  # type: ignore[arg-type]
        return key in self.base if value is None else value is not GONE

    def __iter__(self) -> Iterator[K]:
        base, changes = self.base, self.changes
        for key in base:
            if changes.get(key) is not GONE:
                yield key
        for key, value in changes.items():
            if value is not GONE and key not in base:
                yield key

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"LayeredMap({dict(self)!r})"
