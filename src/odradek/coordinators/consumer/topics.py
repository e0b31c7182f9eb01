"""What a consumer group needs to know of topics, and how it subscribes to them: by name or by regular
expression.

`Topics` is the slice of the metadata image that groups read. `metadata_hash` boils the subscribed topics
down to one number, stored with the group's epoch as Kafka 4.1 does (its record of partition counts is no
longer written): when a topic appears, disappears or grows, the number differs and the group computes a new
assignment. The number is our own (Kafka's hashes racks too), so a group taken over from Kafka computes its
assignment once more, and nothing else happens.

Regular expressions are RE2, which matches in time linear in the name whatever the pattern, so a client
cannot stall the broker. As in Kafka the whole name has to match. Resolving is incremental: a change of the
image names the topics that changed.
"""

import hashlib
import itertools
from collections import deque
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import re2

from odradek.errors import ErrorCode, KafkaError


class Topic(NamedTuple):
    topic_id: UUID
    name: str
    partition_count: int


class Topics(Protocol):
    """The topics of one metadata image. An image never changes; a new one takes its place."""

    def by_name(self, name: str) -> Topic | None: ...

    def by_id(self, topic_id: UUID) -> Topic | None: ...

    def names(self) -> Iterable[str]: ...


class TopicsNow:
    """The newest image, and what changed on the way to it.

    A group remembers the version it last looked at and catches up when one of its members is heard of, so a
    change costs nothing for groups that are idle.
    """

    REMEMBERED_CHANGES = 1_000

    def __init__(self, image: Topics) -> None:
        self.image = image
        self.version = 0
        self._changes: deque[Collection[str]] = deque(maxlen=self.REMEMBERED_CHANGES)

    def publish(self, image: Topics, changed: Collection[str]) -> None:
        """A new image; the topics of these names are new, gone, grown or not the same topic as before."""
        self.image = image
        self.version += 1
        self._changes.append(changed)

    def changed_since(self, version: int) -> set[str] | None:
        """None where that is too long ago to know."""
        count = self.version - version
        if version < 0 or count > len(self._changes):
            return None
        return set[str]().union(*itertools.islice(reversed(self._changes), count))


class Subscription(NamedTuple):
    """What a member reads. `names` is sorted and has no doubles, so like subscriptions are equal."""

    names: tuple[str, ...] = ()
    regex: str | None = None


NO_SUBSCRIPTION = Subscription()


def subscription_of(names: Iterable[str], regex: str | None) -> Subscription:
    """An empty expression is none."""
    return Subscription(tuple(sorted(set(names))), regex or None)


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched, and when that last changed."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


NO_TOPICS = ResolvedRegex(frozenset(), 0, 0)


@lru_cache(maxsize=1_024)
def compiled(regex: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "not RE2 syntax"
        message = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {message}.",
        ) from None


def resolve(regex: str, topics: Topics) -> frozenset[str]:
    return frozenset(filter(compiled(regex).fullmatch, topics.names()))


def resolve_again(
    regex: str, known: frozenset[str], changed: Collection[str], topics: Topics
) -> frozenset[str]:
    """What the expression matches now, when it matched `known` and only the topics `changed` came or went."""
    matches = compiled(regex).fullmatch
    there = {name for name in changed if topics.by_name(name) is not None and matches(name)}
    return known.difference(changed) | there


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    found = sorted(topic for name in names if (topic := topics.by_name(name)) is not None)
    if not found:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for topic_id, name, partition_count in found:
        digest.update(topic_id.bytes + name.encode() + b"\0" + partition_count.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)
