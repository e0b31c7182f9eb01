"""Partitions by name, and the topics that belong to the cluster itself."""

from collections.abc import Iterable
from typing import NamedTuple

from odradek.model import INTERNAL_TOPICS, METADATA_TOPIC

INTERNAL = INTERNAL_TOPICS | {METADATA_TOPIC, "__share_group_state", "__remote_log_metadata"}


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    """The partitions of each topic, in the order in which they are given."""
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    return topics


def is_internal(topic: str) -> bool:
    """True for topics in which the cluster keeps its own state."""
    return topic in INTERNAL
