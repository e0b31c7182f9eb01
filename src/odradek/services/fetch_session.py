"""The follower's end of a fetch session (KIP-227): every partition is named once, then only what changes.

A request names the partitions whose fetch offset, epoch or log start has changed since the last request, and those that
are no longer wanted. If the leader does not know the session (it restarted, or evicted it), or a response was lost, a
full request begins a new one.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from odradek.wire.messages.fetch import FetchTopic, ForgottenTopic

NO_SESSION = 0
INITIAL_EPOCH = 0
MAX_EPOCH = 2**31 - 1

Key = tuple[UUID, int]  # topic id and partition


class Position(NamedTuple):
    """What a follower asks for."""

    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int


class FetchSession:
    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self._told: dict[Key, Position] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._told

    def next_request(
        self, wanted: Mapping[Key, Position], looked_at: Iterable[Key], partition_max_bytes: int
    ) -> "tuple[list[FetchTopic], list[ForgottenTopic]]":
        """What to name in the next request: the changes among the partitions that were looked at since the last one, or
        all partitions if it begins a session."""
        from odradek.wire.messages.fetch import FetchPartition, FetchTopic

        if self.id == NO_SESSION:
            looked_at = wanted
        changed = {
            key: wanted[key] for key in looked_at if key in wanted and self._told.get(key) != wanted[key]
        }
        forgotten = [key for key in looked_at if key not in wanted and self._told.pop(key, None) is not None]
        self._told.update(changed)
        topics: dict[UUID, FetchTopic] = {}
        for (topic_id, index), at in changed.items():
            topic = topics.setdefault(topic_id, FetchTopic(topic_id))
            topic.partitions.append(
                FetchPartition(
                    index,
                    at.leader_epoch,
                    at.offset,
                    at.last_fetched_epoch,
                    at.log_start_offset,
                    partition_max_bytes,
                )
            )
        return list(topics.values()), _forget(forgotten)

    def answered(self, session_id: int) -> None:
        """The leader keeps the session under this id; NO_SESSION if it keeps none."""
        self.id = session_id
        if session_id == NO_SESSION:
            self.reset()
        else:
            self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """Make the next request a full one."""
        self.id, self.epoch = NO_SESSION, INITIAL_EPOCH
        self._told.clear()


def _forget(keys: Iterable[Key]) -> "list[ForgottenTopic]":
    from odradek.wire.messages.fetch import ForgottenTopic

    topics: dict[UUID, ForgottenTopic] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, ForgottenTopic(topic_id)).partitions.append(index)
    return list(topics.values())
