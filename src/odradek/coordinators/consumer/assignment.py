"""A set of partitions, such as a member's current or target assignment: topic id to partition numbers.

Grouped by topic because a topic id is slow to hash and partitions of one topic come in bunches. An
assignment never changes, so it can be shared, and "is it the same object" answers "did
anything change" at once. No topic maps to an empty set, which makes equality of assignments equality of
dicts.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol
from uuid import UUID

Partitions = Mapping[UUID, frozenset[int]]

NO_PARTITIONS: Partitions = {}


class TopicPartitionsLike(Protocol):
    """The form in which requests, responses and records all write the partitions of one topic."""

    topic_id: UUID
    partitions: list[int]


def from_wire(topics: Iterable[TopicPartitionsLike]) -> Partitions:
    found: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return found


def is_within(topics: Iterable[TopicPartitionsLike], assignment: Partitions) -> bool:
    """Is every partition named by `topics` a part of `assignment`?"""
    return all(assignment.get(topic.topic_id, frozenset()).issuperset(topic.partitions) for topic in topics)


def intersects(topics: Iterable[TopicPartitionsLike], assignment: Partitions) -> bool:
    return any(
        not assignment.get(topic.topic_id, frozenset()).isdisjoint(topic.partitions) for topic in topics
    )
