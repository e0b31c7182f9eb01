"""Immutable mappings whose next version costs what changed, not what they contain.

A small mapping is a plain dictionary, and its next version a changed copy. A large one is a dictionary that its
versions share, and the few entries that differ from it: the next version copies only those. Once they are more than the
square root of the shared entries, they are merged into a new dictionary. So a change to a mapping of n entries costs
about √n, and a lookup at most two dictionaries.

Entries come in the order of the shared dictionary, then new ones, and never in an order that depends on hashes. No
value is None.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")

SMALL = 64  # copying this many entries costs less than lookups in two dictionaries


class Gone(Enum):
    """Stands for the value of a key that was removed."""

    GONE = 0


GONE = Gone.GONE


def with_changes(before: Mapping[K, V], changes: Mapping[K, "V | Gone"]) -> Mapping[K, V]:
    """The next version. `before` and what it was made from must not be changed."""
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
