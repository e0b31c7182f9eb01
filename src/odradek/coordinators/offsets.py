"""Committed offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete, every version, and their retention.

A shard keeps its offsets separate from its groups, by group, topic and partition: they outlive members, types
and rebalances of their group, and a consumer that assigns its partitions itself commits without ever being
a member (its first commit makes an empty classic group without a protocol type).

Requests name topics by name; where a version uses ids (10), the caller fills the names in beforehand, and
the ids are kept: they are stored, and an offset stored under another id belongs to a deleted topic of the
same name, so it is not returned. Offsets expire as in Kafka: by an explicit time (OffsetCommit 2 to 4),
else `offsets.retention.minutes` after the group became empty, or after the commit for topics that a Stable
group no longer reads and for groups without members' protocol. A group that is empty and has no offsets
left is removed with them.

An offset that is part of a transaction (`TransactionalCommit`) is pending until a marker ends that transaction
(`pending_offsets`). Meanwhile clients see the offset before it, or UNSTABLE_OFFSET_COMMIT if they require a stable one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from odradek.coordinators.group import Group, GroupSettings, PartitionCheck
from odradek.coordinators.offset_forms import as_single_group, in_transaction, of_single_group
from odradek.coordinators.pending_offsets import PendingOffsets, Place
from odradek.coordinators.records import OffsetCommitKey, OffsetCommitValue
from odradek.coordinators.runtime import Decision, Producer, StateRecord, Timers, Token
from odradek.errors import ErrorCode, KafkaError
from odradek.model import NO_TOPIC_ID, Caller
from odradek.storage.producers.markers import Marker
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

GROUP_ID_NOT_FOUND_SINCE = 9  # OffsetCommit
MANY_GROUPS_SINCE = 8  # OffsetFetch
RECORDS_PER_SWEEP = 1_000  # keeps one batch of tombstones small
GROUPS_PER_SWEEP = 1_000  # and the event loop free
SWEEP_PAUSE_MS = 10
FORGET_RETRY_MS = 1_000
FOREVER_MS = 2**63 - 1

TopicOffsets = dict[int, OffsetCommitValue]
NO_OFFSET = OffsetCommitValue(offset=-1)


@dataclass(frozen=True, slots=True)
class TransactionalCommit:
    """TxnOffsetCommit: offsets that count once the producer's transaction is committed. In all but that it is the same
    as an OffsetCommit, whose topics have their ids."""

    commit: OffsetCommitRequest
    producer: Producer
    is_verified: bool  # just now; else the transaction must be open in the log


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """A marker for this partition. The response is an ErrorCode, once the marker is committed."""

    producer: Producer
    marker: Marker
    transaction_version: int


class Offsets:
    """The offsets of every group of the shard, and the requests for them."""

    def __init__(
        self,
        groups: dict[str, Group],
        new_group: Callable[[str], Group],
        timers: Timers,
        settings: GroupSettings,
    ) -> None:
        self._groups = groups
        self._new_group = new_group
        self._timers = timers
        self._settings = settings
        self._offsets: dict[str, dict[str, TopicOffsets]] = {}  # group -> topic -> partition; no empty dicts
        self._pending = PendingOffsets()
        # Offsets of deleted topics, until their tombstones are in the log: not returned any more. Compared by identity.
        self._stale: dict[Place, list[OffsetCommitValue]] = {}

    # --- state ---

    def replay(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer: Producer | None = None
    ) -> None:
        place = Place(key.group, key.topic, key.partition)
        if value is None:
            self._remove(place)
            return
        if key.group not in self._groups:
            self._groups[key.group] = self._new_group(key.group)
        if producer is not None:
            self._pending.add(place, producer.id, value)
        else:
            self._pending.overtake(place)
            self._put(place, value)

    def replay_marker(self, producer: Producer, marker: Marker) -> None:
        for place, value in self._pending.end(producer.id, committed=not marker.is_abort):
            self._put(place, value)

    def _put(self, place: Place, value: OffsetCommitValue) -> None:
        if self._stale and not self._is_stale(place, value):
            self._stale.pop(place, None)
        self._offsets.setdefault(place.group, {}).setdefault(place.topic, {})[place.partition] = value

    def _remove(self, place: Place) -> None:
        self._stale.pop(place, None)
        self._pending.drop(place)
        topics = self._offsets.get(place.group, {})
        partitions = topics.get(place.topic, {})
        partitions.pop(place.partition, None)
        if not partitions:
            topics.pop(place.topic, None)
        if not topics:
            self._offsets.pop(place.group, None)

    def of(self, group_id: str) -> dict[str, TopicOffsets]:
        return self._offsets.get(group_id, {})

    def _committed(self, place: Place) -> OffsetCommitValue | None:
        return self.of(place.group).get(place.topic, {}).get(place.partition)

    def _is_stale(self, place: Place, value: OffsetCommitValue) -> bool:
        return any(value is each for each in self._stale.get(place, ()))

    def _visible(self, group_id: str) -> dict[str, TopicOffsets]:
        topics = self.of(group_id)
        if not self._stale:
            return topics
        visible = {
            topic: {
                partition: value
                for partition, value in topics[topic].items()
                if not self._is_stale(Place(group_id, topic, partition), value)
            }
            for topic in topics
        }
        return {topic: partitions for topic, partitions in visible.items() if partitions}

    def _places(self, group_id: str) -> Iterator[Place]:
        """Yield the places with an offset that is committed, or pending, or both."""
        topics = self.of(group_id)
        for topic in topics:
            for partition in topics[topic]:
                yield Place(group_id, topic, partition)
        for place in self._pending.places(group_id):
            if self._committed(place) is None:
                yield place

    def _values(self, place: Place) -> list[OffsetCommitValue]:
        committed = self._committed(place)
        return [*([committed] if committed is not None else []), *self._pending.values(place)]

    def tombstones(self, group_id: str) -> list[StateRecord]:
        return [(place.key, None) for place in self._places(group_id)]

    # --- OffsetCommit ---

    def commit(
        self, request: OffsetCommitRequest, version: int, caller: Caller, token: Token, now_ms: int
    ) -> Decision:
        check = self._check_commit(request, version, now_ms)
        return self._commit(request, check, token, now_ms)

    def commit_in_transaction(
        self, request: TransactionalCommit, version: int, caller: Caller, token: Token, now_ms: int
    ) -> Decision:
        check = self._check_transactional_commit(request.commit, version)
        decision = self._commit(request.commit, check, token, now_ms)
        decision.producer = request.producer
        decision.is_verified = request.is_verified
        decision.responses = [(token, in_transaction(response)) for _, response in decision.responses]
        return decision

    def _commit(
        self, request: OffsetCommitRequest, check: PartitionCheck | None, token: Token, now_ms: int
    ) -> Decision:
        decision = Decision()
        expire_ms = (
            min(now_ms + request.retention_time_ms, FOREVER_MS) if request.retention_time_ms != -1 else -1
        )
        response = OffsetCommitResponse()
        for topic in request.topics:
            results = []
            for partition in topic.partitions:
                error = self._refusal(topic, partition, check)
                results.append(OffsetCommitResponsePartition(partition.partition_index, error))
                if error is ErrorCode.NONE:
                    record = _commit_record(request.group_id, topic, partition, now_ms, expire_ms)
                    decision.records.append(record)
            response.topics.append(OffsetCommitResponseTopic(topic.topic_id, topic.name, results))
        decision.responses.append((token, response))
        return decision

    def _check_commit(self, request: OffsetCommitRequest, version: int, now_ms: int) -> PartitionCheck | None:
        generation = request.generation_id_or_member_epoch
        group = self._groups.get(request.group_id)
        if group is None:
            if generation < 0:
                return None
            unknown = version >= GROUP_ID_NOT_FOUND_SINCE
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if unknown else ErrorCode.ILLEGAL_GENERATION)
        check = group.check_offset_commit(request.member_id, request.group_instance_id, generation, version)
        group.keep_session(request.member_id, now_ms)
        return check

    def _check_transactional_commit(
        self, request: OffsetCommitRequest, version: int
    ) -> PartitionCheck | None:
        """Unlike a commit of its own, it is no heartbeat. Its errors are those that producers know in every version."""
        generation = request.generation_id_or_member_epoch
        group = self._groups.get(request.group_id)
        if group is None:
            if generation < 0:
                return None
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        try:
            return group.check_offset_commit(
                request.member_id,
                request.group_instance_id,
                generation,
                version,
                is_transactional=True,
            )
        except KafkaError as error:
            if error.code is ErrorCode.STALE_MEMBER_EPOCH:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION) from error
            raise

    def end_transaction(
        self, request: EndTransaction, version: int, caller: Caller, token: Token, now_ms: int
    ) -> Decision:
        return Decision(
            responses=[(token, ErrorCode.NONE)],
            producer=request.producer,
            marker=request.marker,
            transaction_version=request.transaction_version,
        )

    def _refusal(
        self,
        topic: OffsetCommitRequestTopic,
        partition: OffsetCommitRequestPartition,
        check: PartitionCheck | None,
    ) -> ErrorCode:
        if len(partition.committed_metadata or "") > self._settings.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if check is not None:
            try:
                check(topic.name, topic.topic_id, partition.partition_index)
            except KafkaError as error:
                return error.code
        return ErrorCode.NONE

    # --- OffsetFetch ---

    def fetch(
        self, request: OffsetFetchRequest, version: int, caller: Caller, token: Token, now_ms: int
    ) -> Decision:
        if version >= MANY_GROUPS_SINCE:
            groups = [self._fetch_group(group, request.require_stable) for group in request.groups]
            response = OffsetFetchResponse(groups=groups)
        else:
            group = self._fetch_group(of_single_group(request), request.require_stable)
            if group.error_code != ErrorCode.NONE:
                raise KafkaError(ErrorCode(group.error_code))
            response = as_single_group(group)
        return Decision(responses=[(token, response)])

    def _fetch_group(
        self, request: OffsetFetchRequestGroup, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        group = self._groups.get(request.group_id)
        try:
            if group is not None:
                group.check_offset_fetch(request.member_id, request.member_epoch)
        except KafkaError as error:
            return OffsetFetchResponseGroup(request.group_id, [], error.code)
        offsets = self._visible(request.group_id)
        wanted = request.topics
        if wanted is None:
            wanted = [OffsetFetchRequestTopics(NO_TOPIC_ID, topic, list(offsets[topic])) for topic in offsets]
        topics = [
            OffsetFetchResponseTopics(
                topic.topic_id,
                topic.name,
                list(_fetched(offsets.get(topic.name, {}), topic.topic_id, topic.partition_indexes)),
            )
            for topic in wanted
        ]
        if require_stable and self._pending.has_group(request.group_id):
            self._withhold_unstable(request.group_id, topics)
        return OffsetFetchResponseGroup(request.group_id, topics)

    def _withhold_unstable(self, group_id: str, topics: list[OffsetFetchResponseTopics]) -> None:
        for topic in topics:
            topic.partitions = [
                OffsetFetchResponsePartitions(
                    each.partition_index, -1, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
                )
                if Place(group_id, topic.name, each.partition_index) in self._pending
                else each
                for each in topic.partitions
            ]

    # --- OffsetDelete ---

    def delete(
        self, request: OffsetDeleteRequest, version: int, caller: Caller, token: Token, now_ms: int
    ) -> Decision:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = self._groups.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        group.check_offset_delete()
        decision = Decision()
        topics = [self._delete_topic(group, topic, decision) for topic in request.topics]
        decision.responses.append((token, OffsetDeleteResponse(topics=topics)))
        return decision

    def _delete_topic(
        self, group: Group, topic: OffsetDeleteRequestTopic, decision: Decision
    ) -> OffsetDeleteResponseTopic:
        subscribed = group.is_subscribed_to(topic.name)
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        for partition in topic.partitions:
            place = Place(group.group_id, topic.name, partition.partition_index)
            if not subscribed and (self._committed(place) is not None or place in self._pending):
                decision.records.append((place.key, None))
        results = [OffsetDeleteResponsePartition(each.partition_index, error) for each in topic.partitions]
        return OffsetDeleteResponseTopic(topic.name, results)

    # --- offsets that are removed automatically ---

    def topics_deleted(self, topics: Iterable[str], now_ms: int) -> None:
        """Forget the offsets of topics that are gone: a tick for each group that has some."""
        gone = frozenset(topics)
        for group_id in self._groups_with_offsets():
            stale = {place: self._values(place) for place in self._places(group_id) if place.topic in gone}
            self._begin_to_forget(stale, ("topics deleted", group_id, gone), now_ms)

    def forget_missing_topics(self, id_of: Callable[[str], UUID | None], now_ms: int) -> None:
        """Forget the offsets of topics that have no id now, or a different one from when the offset was committed."""
        for group_id in self._groups_with_offsets():
            stale = {}
            for place in self._places(group_id):
                topic_id = id_of(place.topic)
                stale[place] = [
                    value
                    for value in self._values(place)
                    if topic_id is None or value.topic_id not in (NO_TOPIC_ID, topic_id)
                ]
            self._begin_to_forget(stale, ("topics missing", group_id), now_ms)

    def _groups_with_offsets(self) -> list[str]:
        return list(dict.fromkeys([*self._offsets, *self._pending.groups()]))

    def _begin_to_forget(
        self, stale: dict[Place, list[OffsetCommitValue]], key: Hashable, now_ms: int
    ) -> None:
        places = [place for place in stale if stale[place]]
        for place in places:
            self._stale[place] = self._stale.get(place, []) + stale[place]
        if places:
            self._timers.schedule(key, now_ms, partial(self._forget, key, places))

    def _forget(self, key: Hashable, places: list[Place], now_ms: int) -> Decision:
        """Offsets committed since then belong to the next topic of that name, and stay. A tombstone would remove those
        that are pending too: then it waits until their transactions have ended. If the log cannot take the tombstones
        now, this is tried again."""
        stale = [place for place in places if place in self._stale]
        waiting = [place for place in stale if self._has_new_pending(place)]
        now_gone = [place for place in stale if not self._has_new_pending(place)]
        again_ms = now_ms + FORGET_RETRY_MS
        if waiting:
            self._timers.schedule(key, again_ms, partial(self._forget, key, waiting))
        again = partial(self._forget, key, stale)
        return Decision(
            [(place.key, None) for place in now_gone],
            undo=lambda: self._timers.schedule(key, again_ms, again),
        )

    def _has_new_pending(self, place: Place) -> bool:
        return any(not self._is_stale(place, value) for value in self._pending.values(place))

    def schedule_expiry(self, now_ms: int) -> None:
        next_ms = now_ms + self._settings.offsets_retention_check_interval_ms
        self._timers.schedule("expire offsets", next_ms, self._begin_sweep)

    def _begin_sweep(self, now_ms: int) -> Decision | None:
        self.schedule_expiry(now_ms)
        return self._sweep(iter(list(self._groups)), now_ms)

    def _sweep(self, group_ids: Iterator[str], now_ms: int) -> Decision | None:
        """Expire group by group, a slice at a time."""
        decision = Decision()
        for seen, group_id in enumerate(group_ids, start=1):
            group = self._groups.get(group_id)
            if group is not None:
                decision.records += self._expired(group, now_ms)
            if seen >= GROUPS_PER_SWEEP or len(decision.records) >= RECORDS_PER_SWEEP:
                self._timers.schedule("sweep", now_ms + SWEEP_PAUSE_MS, partial(self._sweep, group_ids))
                break
        return decision

    def _expired(self, group: Group, now_ms: int) -> list[StateRecord]:
        """Tombstones for expired offsets, and for the group itself if nothing is left of it."""
        records: list[StateRecord] = []
        kept = 0
        for topic, partitions in self.of(group.group_id).items():
            subscribed = group.is_subscribed_to(topic)
            for partition, offset in partitions.items():
                place = Place(group.group_id, topic, partition)
                is_kept = subscribed or place in self._pending
                if not is_kept and self._is_expired(group, offset, now_ms):
                    records.append((place.key, None))
                else:
                    kept += 1
        if not kept and group.is_empty and not self._pending.has_group(group.group_id):
            records += group.tombstones()
        return records

    def _is_expired(self, group: Group, offset: OffsetCommitValue, now_ms: int) -> bool:
        since_ms = group.offsets_expire_from_ms(offset)
        if since_ms is None:
            return False
        if offset.expire_timestamp != -1:
            return now_ms >= offset.expire_timestamp
        return now_ms - since_ms >= self._settings.offsets_retention_ms


def _commit_record(
    group_id: str,
    topic: OffsetCommitRequestTopic,
    partition: OffsetCommitRequestPartition,
    now_ms: int,
    expire_ms: int,
) -> StateRecord:
    value = OffsetCommitValue(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        now_ms,
        expire_ms,
        topic.topic_id,
    )
    return OffsetCommitKey(group_id, topic.name, partition.partition_index), value


def _fetched(
    stored: TopicOffsets, topic_id: UUID, partitions: Iterable[int]
) -> Iterator[OffsetFetchResponsePartitions]:
    for partition in partitions:
        offset = stored.get(partition, NO_OFFSET)
        if NO_TOPIC_ID not in (topic_id, offset.topic_id) and topic_id != offset.topic_id:
            offset = NO_OFFSET
        yield OffsetFetchResponsePartitions(partition, offset.offset, offset.leader_epoch, offset.metadata)
