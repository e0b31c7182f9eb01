"""A large request as several small ones.

Coordinator and controller decide on a request as a whole, in one turn of the event loop. A request that names more
than a coordinator should look at in one turn is cut into parts, which are decided one after the other; the answer is
that of all parts together. What each of its items gets is the same: only all or nothing was never promised.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from odradek.wire.codec import Steps

T = TypeVar("T")

MOST = 500  # what a part names
RESOURCES_AT_ONCE = 50  # whose settings are altered in one turn of the event loop


def cut(items: Sequence[T], field: str = "", most: int = MOST) -> Steps[list[list[T]]]:
    """The items in lists that together have not more than `most` elements in this field (by default, items)."""
    parts: list[list[T]] = []
    room = 0
    for item in items:
        for piece in _pieces(item, field, most):
            weight = max(len(getattr(piece, field)), 1) if field else 1
            if weight > room:
                parts.append([])
                room = most
            parts[-1].append(piece)
            room -= weight
        yield
    return parts or [[]]


def _pieces(item: Any, field: str, most: int) -> Sequence[Any]:
    """The item, or several like it with some of its elements each."""
    elements = getattr(item, field) if field else ()
    if len(elements) <= most:
        return (item,)
    return [replace(item, **{field: elements[at : at + most]}) for at in range(0, len(elements), most)]


def cut_by(
    items: Sequence[T],
    key: Callable[[T], Hashable],
    most: int,
    identity: Callable[[T], Hashable] | None = None,
) -> Steps[list[list[T]]]:
    """The items in lists of about `most`; those with the same key, which have to be seen together, in the same.

    Of those that are named again and again (by `identity`, if not by the key) two are enough to be refused.
    """
    together: dict[Hashable, list[T]] = {}
    counts: Counter[Hashable] = Counter()
    for item in items:
        counts[(identity or key)(item)] += 1
        if counts[(identity or key)(item)] <= 2:
            together.setdefault(key(item), []).append(item)
        yield
    parts: list[list[T]] = [[]]
    for alike in together.values():
        if len(parts[-1]) >= most:
            parts.append([])
        parts[-1] += alike
        yield
    return parts
