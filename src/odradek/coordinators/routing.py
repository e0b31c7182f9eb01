"""Which partition of an internal topic keeps a group, and requests that name groups of several partitions.

All that is said of groups is true of transactional ids too.

Kafka's rule: Java's `String.hashCode` of the group's id, modulo the number of partitions. `split` divides a
request about many groups, one or more for each partition; `apis.items.join` combines the responses again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from odradek.apis.items import MOST
from odradek.apis.row import Resource
from odradek.apis.table import APIS
from odradek.wire.codec import Steps
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from odradek.wire.messages.offset_fetch import OffsetFetchRequestTopics

KEYS = (Resource.GROUP, Resource.TRANSACTIONAL_ID)


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, in 32 bits with a sign."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@lru_cache(maxsize=1 << 14)  # every heartbeat asks, and Python takes its time over a hash of Java's
def partition_of(group_id: str, partition_count: int) -> int:
    # Kafka's Utils.abs: the one number without a positive counterpart becomes 0.
    value = java_hash(group_id)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


def split(request: Any, partition_count: int) -> Steps[list[tuple[int, Any]]]:
    """A request about many groups as one or more for each of their partitions, in its order. A transaction comes alone:
    each is a decision of its own."""
    if isinstance(request, AddPartitionsToTxnRequest):
        return (yield from _split_transactions(request, partition_count))
    (name,) = [items.request for items in APIS[request.API_KEY].items if items.resource in KEYS]
    parts: dict[int, list[list[Any]]] = {}
    rooms: dict[int, int] = {}
    for group in getattr(request, name):
        partition = partition_of(_key_of(group), partition_count)
        for piece, weight in _pieces(group):
            if rooms.get(partition, 0) < weight:
                parts.setdefault(partition, []).append([])
                rooms[partition] = MOST
            parts[partition][-1].append(piece)
            rooms[partition] -= weight
        yield
    return [
        (partition, dataclasses.replace(request, **{name: groups}))
        for partition, lists in parts.items()
        for groups in lists
    ]


def _split_transactions(
    request: AddPartitionsToTxnRequest, partition_count: int
) -> Steps[list[tuple[int, Any]]]:
    parts: list[tuple[int, Any]] = []
    for each in request.transactions:
        partition = partition_of(each.transactional_id, partition_count)
        parts.append((partition, AddPartitionsToTxnRequest([each])))
        yield
    return parts


def _key_of(item: Any) -> str:
    """The item is a group, or the id of a group or a transaction."""
    if isinstance(item, str):
        return item
    key: str = item.group_id
    return key


def _pieces(group: Any) -> Iterator[tuple[Any, int]]:
    """The group as requested, or several times with some of the partitions each; and how many partitions."""
    if isinstance(group, str) or group.topics is None:
        yield group, 1
        return
    topics: list[OffsetFetchRequestTopics] = []
    room = MOST
    for topic in group.topics:
        indexes = topic.partition_indexes
        for at in range(0, len(indexes) or 1, MOST):
            some = indexes[at : at + MOST]
            if len(some) + 1 > room and topics:
                yield dataclasses.replace(group, topics=topics), MOST - room
                topics, room = [], MOST
            topics.append(
                topic if len(some) == len(indexes) else dataclasses.replace(topic, partition_indexes=some)
            )
            room -= len(some) + 1
    yield dataclasses.replace(group, topics=topics), min(MOST - room + 1, MOST)
