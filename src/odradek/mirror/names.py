"""Which topics are copied, and what a copy is called: `west.orders` is the copy of `orders` of the cluster `west`.

A copy's name begins with the names of the clusters it has come through. So a topic with the target's name among them
has been there before, and is never copied to it again: two clusters may be mirrored in both directions.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from odradek.admin.places import is_internal

SEPARATOR = "."
OWN_TOPICS = "_odradek-"  # ledgers and positions belong to their cluster
CLUSTER_NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Direction:
    """The names of the two clusters."""

    source: str
    target: str

    def copy_of(self, topic: str) -> str:
        return f"{self.source}{SEPARATOR}{topic}"

    def returns(self, topic: str) -> bool:
        """True if the topic has come from the target, or through it."""
        return self.target in topic.split(SEPARATOR)[:-1]

    def reversed(self) -> "Direction":
        return Direction(self.target, self.source)


@dataclass(frozen=True)
class Choice:
    """Names, those that match a pattern as a whole, and of both only those that do not match another one."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    exclude: str = ""

    def has(self, name: str) -> bool:
        wanted = name in self.names or bool(self.pattern and re.fullmatch(self.pattern, name))
        return wanted and not (self.exclude and re.fullmatch(self.exclude, name))


def topics_to_copy(direction: Direction, choice: Choice, existing: Iterable[str]) -> list[str]:
    """Return the source's topics that are chosen, without its own and those that would return."""
    return sorted(
        name
        for name in existing
        if choice.has(name)
        and not is_internal(name)
        and not name.startswith(OWN_TOPICS)
        and not direction.returns(name)
    )
