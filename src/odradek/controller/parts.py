"""Cuts a large request to the controller into several small ones.

The controller decides each request in one turn of the event loop. One that is too large for that is cut into parts,
which are decided in order; their responses are joined. Each item gets the same result as in the whole request: Kafka
never promised all or nothing. (`apis.items` cuts by size alone; here, what must be decided together stays together.)
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from odradek.apis.items import cut
from odradek.errors import ErrorCode, KafkaError
from odradek.wire.codec import Message, Steps

T = TypeVar("T")

RESOURCES_AT_ONCE = 50  # altered in one turn of the event loop
PARTITIONS_AT_ONCE = 500  # likewise


MAX_RECORDS_PER_REQUEST = 10_000  # that a request about ACLs may write, as in Kafka


class Part(NamedTuple):
    request: Message
    partition_count: int | None = None  # of the whole request, if that is what the limit is on
    prepared: Any = None  # what `cut` found out about the whole request, in several turns of the event loop


def too_large() -> KafkaError:
    return KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def cut_by(
    items: Sequence[T],
    key: Callable[[T], Hashable],
    most: int,
    identity: Callable[[T], Hashable] | None = None,
) -> Steps[list[list[T]]]:
    """The items in lists of about `most`. Those with the same key must be decided together, so they share a list.

    Of items that are named many times (by `identity`, or else by the key) only two are kept: enough to be refused.
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


def cut_partitions(topics: Sequence[T]) -> Steps[list[list[T]]]:
    """Topics, each with a list of `partitions`. One with more of them than are decided in one turn of the event loop is
    in several lists."""
    return cut(topics, "partitions", PARTITIONS_AT_ONCE)
