"""A large request as several small ones.

A coordinator decides on a request as a whole, in one turn of the event loop. A request that names more than it
should handle in one turn is cut into parts, which are decided one after the other; their responses are
combined. The result for each item is the same: a request was never promised to be atomic. (Requests to the controller
are cut by the controller, see `controller.parts`.)
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from odradek.wire.codec import Steps

T = TypeVar("T")

MOST = 500  # items in a part


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
