"""The topics as a consumer group sees them, and how it subscribes to them: by name or by regular
expression.

`TopicsNow` tells groups which topics changed. `metadata_hash` reduces the subscribed topics
to one number, stored with the group's epoch as Kafka 4.1 does (its record of partition counts is no
longer written): when a topic appears, disappears or grows, the number differs and the group computes a new
assignment. The number is our own (Kafka's hashes racks too), so a group taken over from Kafka computes its
assignment once more, which does no harm.

Regular expressions are RE2, which matches in time linear in the name whatever the pattern, so a client
cannot stall the broker. As in Kafka the whole name has to match. Resolving is incremental: a change of the
image names the topics that changed.
"""

import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import re2

from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage

MayDescribe = Callable[[str], bool]  # whether somebody may see the topic of that name


def every_topic(name: str) -> bool:
    """Without ACLs, everybody sees every topic."""
    return True


class TopicsNow:
    """The newest metadata image, and which topics changed up to it.

    A group remembers the version it last looked at and catches up when one of its members sends a heartbeat, so a
    change costs nothing for groups that are idle.
    """

    REMEMBERED_CHANGES = 1_000

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.version = 0
        self._changes: deque[set[str]] = deque(maxlen=self.REMEMBERED_CHANGES)

    def publish(self, delta: MetadataDelta) -> None:
        """A new image. A new leader or replica of a partition is no news to a group."""
        self.image = delta.after
        changed = {topic.name for topic in (*delta.created_topics, *delta.deleted_topics)}
        changed.update(
            change.after.name
            for change in delta.changed_topics
            if len(change.before.partitions) != len(change.after.partitions)
        )
        if delta.changed_acls:  # any topic may have appeared to somebody, or disappeared
            self.version += 1
            self._changes.clear()
        elif changed:
            self.version += 1
            self._changes.append(changed)

    def changed_since(self, version: int) -> set[str] | None:
        """The topics changed since a version; None if that is too long ago to know."""
        count = self.version - version
        if version < 0 or count > len(self._changes):
            return None
        return set[str]().union(*itertools.islice(reversed(self._changes), count))


class Subscription(NamedTuple):
    """A member's subscription. `names` is sorted and has no duplicates, so equal subscriptions compare equal."""

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


def resolve(regex: str, image: MetadataImage, may_describe: MayDescribe = every_topic) -> frozenset[str]:
    return frozenset(filter(may_describe, filter(compiled(regex).fullmatch, image.topics)))


def resolve_again(
    regex: str,
    known: frozenset[str],
    changed: Collection[str],
    image: MetadataImage,
    may_describe: MayDescribe = every_topic,
) -> frozenset[str]:
    """The topics that the expression matches now, if it matched `known` and only `changed` appeared or disappeared."""
    matches = compiled(regex).fullmatch
    there = {name for name in changed if name in image.topics and matches(name) and may_describe(name)}
    return known.difference(changed) | there


def metadata_hash(names: Iterable[str], image: MetadataImage) -> int:
    found = [topic for name in sorted(names) if (topic := image.topics.get(name)) is not None]
    if not found:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for topic in found:
        digest.update(topic.name.encode() + b"\0" + topic.id.bytes + len(topic.partitions).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)
