"""One member of a consumer group, and its way from its current partitions to its target.

A member has `assigned`, the partitions it was told to read, and `revoking`, those it was told to stop reading and
has not yet confirmed. No other member gets a partition that is in either. The way to a new target, epoch by epoch:

    STABLE                at the target's epoch, nothing left to do
    UNREVOKED_PARTITIONS  told to give up partitions; its epoch stays until its heartbeat no longer names them
    UNRELEASED_PARTITIONS at the target's epoch, but other members still have some of the partitions; it waits

Giving up comes first, and only then does the epoch increase: a member that still has partitions to revoke cannot be
mistaken for one that has not. `reconcile` takes one step; every heartbeat tries one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from odradek.coordinators import records
from odradek.coordinators.consumer.assignment import (
    NO_PARTITIONS,
    Partitions,
    TopicPartitionsLike,
    from_wire,
    intersects,
)
from odradek.coordinators.consumer.topics import NO_SUBSCRIPTION, Subscription, subscription_of
from odradek.coordinators.group import member_name
from odradek.coordinators.runtime import StateRecord
from odradek.errors import ErrorCode, KafkaError

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


class MemberState(IntEnum):
    """The states as they are stored; a newer broker's states read as UNKNOWN."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> "MemberState":
        return cls.UNKNOWN


class ClassicProtocol(NamedTuple):
    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """The extra state of a member of the classic protocol: `protocols` in its order of preference, never
    none.
    """

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """`assigned` and `revoking` have nothing in common, with each other or with those of other members.

    `classic` is None for a member of the consumer protocol.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscription: Subscription = NO_SUBSCRIPTION
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMember | None = None

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    revoking: Partitions = field(default_factory=dict)

    def __str__(self) -> str:
        return member_name(self.member_id, self.instance_id)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch


# --- one step towards the promise ---


def reconcile(
    member: Member,
    target_epoch: int,
    target: Partitions,
    holder_of: Callable[[UUID, int], str | None],
    owned: Sequence[TopicPartitionsLike] | None,
) -> Member:
    """The member after one step; the same object if it has to wait.

    `owned` are the partitions that its heartbeat names; None if it does not say.
    """
    if member.is_reconciled_to(target_epoch):
        return member
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_reads(owned, member.revoking):
            return member
        epoch += 1
    elif member.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The member is in an unknown state. It must abandon all its partitions and rejoin.",
            )
        epoch = target_epoch
    return _step(member, epoch, target_epoch, target, holder_of, owned)


def _step(
    member: Member,
    epoch: int,
    target_epoch: int,
    target: Partitions,
    holder_of: Callable[[UUID, int], str | None],
    owned: Sequence[TopicPartitionsLike] | None,
) -> Member:
    kept, to_revoke = _split_by(member.assigned, target)
    if to_revoke and _still_reads(owned, to_revoke):
        return _at_epoch(member, epoch, MemberState.UNREVOKED_PARTITIONS, kept, to_revoke)
    new, unreleased = _free_part(member.member_id, target, kept, holder_of)
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return _at_epoch(member, target_epoch, state, new, NO_PARTITIONS)


def _still_reads(owned: Sequence[TopicPartitionsLike] | None, partitions: Partitions) -> bool:
    return owned is None or intersects(owned, partitions)


def _split_by(assigned: Partitions, target: Partitions) -> tuple[Partitions, Partitions]:
    if assigned is target:
        return assigned, NO_PARTITIONS
    kept, to_revoke = {}, {}
    for topic, held in assigned.items():
        wanted = target.get(topic, frozenset())
        if held & wanted:
            kept[topic] = held & wanted
        if held - wanted:
            to_revoke[topic] = held - wanted
    return kept, to_revoke


def _free_part(
    member_id: str, target: Partitions, kept: Partitions, holder_of: Callable[[UUID, int], str | None]
) -> tuple[Partitions, bool]:
    """The part of the target that this member may have at once, and whether other members still have the rest."""
    unreleased = False
    free: dict[UUID, frozenset[int]] = {}
    for topic, wanted in target.items():
        held_elsewhere = {
            partition
            for partition in wanted.difference(kept.get(topic, ()))
            if holder_of(topic, partition) not in (None, member_id)
        }
        unreleased = unreleased or bool(held_elsewhere)
        if available := wanted - held_elsewhere:
            free[topic] = available
    return free, unreleased


def _at_epoch(
    member: Member, epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions
) -> Member:
    now = (member.epoch, member.state, member.assigned, member.revoking)
    if now == (epoch, state, assigned, revoking):
        return member
    # Even if the epoch stays: a heartbeat older than this step must not be taken for its acknowledgement.
    return replace(
        member, epoch=epoch, previous_epoch=member.epoch, state=state, assigned=assigned, revoking=revoking
    )


# --- as records ---


def metadata_record(group_id: str, member: Member) -> StateRecord:
    value = records.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscription.names),
        subscribed_topic_regex=member.subscription.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=_classic_value(member.classic),
    )
    return records.ConsumerGroupMemberMetadataKey(group_id, member.member_id), value


def _classic_value(classic: ClassicMember | None) -> records.ClassicMemberMetadata | None:
    if classic is None:
        return None
    protocols = [records.ClassicProtocol(*protocol) for protocol in classic.protocols]
    return records.ClassicMemberMetadata(classic.session_timeout_ms, protocols)


def with_metadata(member: Member, value: records.ConsumerGroupMemberMetadataValue) -> Member:
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscription=subscription_of(value.subscribed_topic_names, value.subscribed_topic_regex),
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=_classic_from(value.classic_member_metadata),
    )


def _classic_from(value: records.ClassicMemberMetadata | None) -> ClassicMember | None:
    if value is None:
        return None
    protocols = (ClassicProtocol(each.name, bytes(each.metadata)) for each in value.supported_protocols)
    return ClassicMember(value.session_timeout_ms, tuple(protocols))


def current_record(group_id: str, member: Member) -> StateRecord:
    value = records.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_assigned(member.assigned),
        partitions_pending_revocation=_assigned(member.revoking),
    )
    return records.ConsumerGroupCurrentMemberAssignmentKey(group_id, member.member_id), value


def _assigned(partitions: Partitions) -> list[records.AssignedPartitions]:
    return [records.AssignedPartitions(topic, sorted(numbers)) for topic, numbers in partitions.items()]


def with_current(member: Member, value: records.ConsumerGroupCurrentMemberAssignmentValue) -> Member:
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=from_wire(value.assigned_partitions),
        revoking=from_wire(value.partitions_pending_revocation),
    )


def target_record(group_id: str, member_id: str, target: Partitions) -> StateRecord:
    value = records.ConsumerGroupTargetAssignmentMemberValue(
        [records.TargetPartitions(topic, sorted(numbers)) for topic, numbers in target.items()]
    )
    return records.ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), value


def removal_records(group_id: str, member_id: str) -> list[StateRecord]:
    """The member itself comes last: while it is there, its partitions are not forgotten."""
    return [
        (records.ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        (records.ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None),
        (records.ConsumerGroupMemberMetadataKey(group_id, member_id), None),
    ]
