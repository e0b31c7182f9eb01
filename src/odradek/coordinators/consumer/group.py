"""The state of one consumer group. Only `replay_*` change it; everything else reads.

Three epochs show how far a change has come. The group's epoch increases when its members or topics change; the
assignment's follows when the target assignment for that state is stored; each member's follows when the member
has reached its target. So the state's name is not stored, but derived:

    Empty        no members
    Assigning    the group's epoch is ahead of the assignment's
    Reconciling  a member has not reached its target yet
    Stable       all members have

Counts per subscription, per owner and per assignor are derived from the members and kept up to date by the
same replay, so a heartbeat never walks over all members.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from odradek.coordinators import records
from odradek.coordinators.consumer.assignment import NO_PARTITIONS, Partitions, from_wire
from odradek.coordinators.consumer.member import (
    LEAVE_EPOCH,
    Member,
    MemberState,
    with_current,
    with_metadata,
)
from odradek.coordinators.consumer.topics import ResolvedRegex, Subscription
from odradek.coordinators.group import CONSUMER_PROTOCOL, GroupType, PartitionCheck
from odradek.coordinators.runtime import StateRecord
from odradek.errors import ErrorCode, KafkaError

FIRST_COMMIT_VERSION_WITH_MEMBER_EPOCH = 9

Key = TypeVar("Key", bound=Hashable)


class ConsumerGroup:
    """Its members, with their current and target partitions."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        # Kafka before 4.1 stored partition counts; the record goes away with the next change of epoch.
        self.has_partition_metadata_record = False

        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.subscriptions: dict[Subscription, int] = {}  # how many members have it
        self.assignors: dict[str, int] = {}  # how many members prefer it
        self.classic_protocols: dict[str, int] = {}  # how many classic members support it
        self.classic_member_count = 0
        self._holders: dict[UUID, dict[int, str]] = {}  # the member that has it in `assigned` or `revoking`

        # Memory only: the version of the topics that `metadata_hash` and `regexes` are known to speak of.
        self.topics_version = -1
        # And since when its members have not been where the assignment wants them: None if they are, or unknown.
        self.rebalancing_since_ms: int | None = None

    @classmethod
    def of(cls, group_id: str, epoch: int, members: Iterable[Member]) -> "ConsumerGroup":
        """A group in which every member has its target partitions."""
        group = cls(group_id)
        group.epoch = group.assignment_epoch = epoch
        for member in members:
            group._put(member)
            group.targets[member.member_id] = member.assigned
        return group

    # --- read ---

    @property
    def type(self) -> GroupType:
        return GroupType.CONSUMER

    @property
    def protocol_type(self) -> str:
        return CONSUMER_PROTOCOL

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def holder_of(self, topic_id: UUID, partition: int) -> str | None:
        holders = self._holders.get(topic_id)
        return None if holders is None else holders.get(partition)

    def member(self, member_id: str) -> Member:
        found = self.members.get(member_id)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return found

    def static_member(self, instance_id: str | None) -> Member | None:
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members[member_id]

    def preferred_assignor(self, default: str) -> str:
        return most_wanted(self.assignors, default)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in subscribed_topics(self.subscriptions, self.regexes)

    # --- for offsets and administration ---

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        api_version: int,
        *,
        is_transactional: bool = False,
    ) -> PartitionCheck | None:
        if generation < 0 and not self.members:
            return None  # an administrator, or a consumer that manages its partitions itself
        if is_transactional and generation == -1 and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        knows_epochs = is_transactional or api_version >= FIRST_COMMIT_VERSION_WITH_MEMBER_EPOCH
        if member.classic is None and not knows_epochs:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        _check_epoch(member, generation)
        return None

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is not None or member_epoch >= 0:
            _check_epoch(self.member(member_id or ""), member_epoch)

    def check_offset_delete(self) -> None:
        """Always allowed: topics that the group reads are refused one by one."""

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")

    def keep_session(self, member_id: str, now_ms: int) -> None:
        """In this protocol only a heartbeat is one."""

    def offsets_expire_from_ms(self, offset: records.OffsetCommitValue) -> int | None:
        return offset.commit_timestamp

    def tombstones(self) -> list[StateRecord]:
        """Tombstones for everything that the log may have of the group; the group itself last."""
        group_id, member_ids = self.group_id, self.members
        return [
            *((records.ConsumerGroupCurrentMemberAssignmentKey(group_id, each), None) for each in member_ids),
            *((records.ConsumerGroupTargetAssignmentMemberKey(group_id, each), None) for each in member_ids),
            (records.ConsumerGroupTargetAssignmentMetadataKey(group_id), None),
            *((records.ConsumerGroupMemberMetadataKey(group_id, each), None) for each in member_ids),
            *((records.ConsumerGroupRegularExpressionKey(group_id, regex), None) for regex in self.regexes),
            *partition_metadata_tombstone(self),
            (records.ConsumerGroupMetadataKey(group_id), None),
        ]

    # --- replay ---

    def replay_epoch(self, value: records.ConsumerGroupMetadataValue) -> None:
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash

    def replay_assignment_epoch(
        self, value: records.ConsumerGroupTargetAssignmentMetadataValue | None
    ) -> None:
        self.assignment_epoch = value.assignment_epoch if value is not None else -1

    def replay_target(
        self, member_id: str, value: records.ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = from_wire(value.topic_partitions)

    def replay_regex(self, regex: str, value: records.ConsumerGroupRegularExpressionValue | None) -> None:
        if value is None:
            self.regexes.pop(regex, None)
        else:
            self.regexes[regex] = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)

    def replay_member(self, member_id: str, value: records.ConsumerGroupMemberMetadataValue | None) -> None:
        if value is not None:
            self._put(with_metadata(self.members.get(member_id) or Member(member_id), value))
        elif member_id in self.members:
            self._remove(member_id)

    def replay_current(
        self, member_id: str, value: records.ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        if value is not None:
            self._put(with_current(self.members.get(member_id) or Member(member_id), value))
        elif member_id in self.members:
            self._put(
                replace(
                    self.members[member_id],
                    epoch=LEAVE_EPOCH,
                    previous_epoch=LEAVE_EPOCH,
                    state=MemberState.STABLE,
                    assigned=NO_PARTITIONS,
                    revoking=NO_PARTITIONS,
                )
            )

    def _put(self, member: Member) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._count(old, -1)
            self._release(old)
        self.members[member.member_id] = member
        self._count(member, +1)
        for partitions in (member.assigned, member.revoking):
            for topic, numbers in partitions.items():
                self._holders.setdefault(topic, {}).update(dict.fromkeys(numbers, member.member_id))
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def _remove(self, member_id: str) -> None:
        old = self.members.pop(member_id)
        self._count(old, -1)
        self._release(old)
        if old.instance_id is not None and self.static_members.get(old.instance_id) == member_id:
            del self.static_members[old.instance_id]

    def _count(self, member: Member, by: int) -> None:
        add_to_count(self.subscriptions, member.subscription, by)
        if member.server_assignor is not None:
            add_to_count(self.assignors, member.server_assignor, by)
        if member.classic is not None:
            self.classic_member_count += by
            for protocol in member.classic.protocols:
                add_to_count(self.classic_protocols, protocol.name, by)

    def _release(self, member: Member) -> None:
        """Forget this member's partitions, but not those that a later record gave to another member."""
        for partitions in (member.assigned, member.revoking):
            for topic, numbers in partitions.items():
                holders = self._holders.get(topic, {})
                for number in numbers:
                    if holders.get(number) == member.member_id:
                        del holders[number]
                if not holders:
                    self._holders.pop(topic, None)


def add_to_count(counts: dict[Key, int], key: Key, by: int) -> None:
    count = counts.get(key, 0) + by
    if count:
        counts[key] = count
    else:
        del counts[key]


def most_wanted(assignors: Mapping[str, int], default: str) -> str:
    """The assignor that most members prefer; of equals the first by name, for every coordinator the same."""
    return max(sorted(assignors), key=lambda name: assignors[name], default=default)


def _check_epoch(member: Member, received: int) -> None:
    if received != member.epoch:
        is_classic = member.classic is not None
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH,
            f"The received epoch {received} does not match the expected member epoch {member.epoch}.",
        )


def subscribed_topics(
    subscriptions: Iterable[Subscription], regexes: Mapping[str, ResolvedRegex]
) -> Iterator[str]:
    """May name a topic more than once."""
    for subscription in subscriptions:
        yield from subscription.names
        if subscription.regex is not None and subscription.regex in regexes:
            yield from regexes[subscription.regex].topics


# --- records of the whole group ---


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> StateRecord:
    value = records.ConsumerGroupMetadataValue(epoch, metadata_hash)
    return records.ConsumerGroupMetadataKey(group_id), value


def assignment_epoch_record(group_id: str, epoch: int, now_ms: int) -> StateRecord:
    value = records.ConsumerGroupTargetAssignmentMetadataValue(epoch, now_ms)
    return records.ConsumerGroupTargetAssignmentMetadataKey(group_id), value


def partition_metadata_tombstone(group: ConsumerGroup) -> list[StateRecord]:
    if not group.has_partition_metadata_record:
        return []
    return [(records.ConsumerGroupPartitionMetadataKey(group.group_id), None)]
