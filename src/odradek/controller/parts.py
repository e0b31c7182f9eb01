"""A large request to the controller as several small ones.

The controller decides on what it is given in one turn of the event loop. A request that names more than should be
decided in one turn is cut into parts, which are decided one after the other; the response is that of all parts
together. Each item fares as it would in the whole: Kafka never promised all or nothing.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from odradek.wire.codec import Message, Steps

T = TypeVar("T")

RESOURCES_AT_ONCE = 50  # whose settings are altered in one turn of the event loop


class Part(NamedTuple):
    request: Message
    partition_count: int | None = None  # that the whole request asks for, where the limit is on that


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


def cut_resources(request: Any) -> Steps[list[Part]]:
    """AlterConfigs or IncrementalAlterConfigs."""
    parts = yield from cut_by(
        request.resources, lambda item: (item.resource_type, item.resource_name), RESOURCES_AT_ONCE
    )
    return [Part(replace(request, resources=part)) for part in parts]
