"""Migration from a classic group to a consumer group and back, while its members keep working.

Up: a member of the consumer protocol joins a classic group of consumers. The log's record of the classic
group is replaced by those of a consumer group in which the last assignment of every member is both its current
and its target one; members in the middle of a rebalance are told to join again. Then the new member joins that
group like any other.

Down: when no member of a consumer group uses the consumer protocol any more, the group becomes a classic one
in the generation its members are in, and rebalances at once. Both are separate steps, right after
the event that removed or replaced the last such member: replay notices and sets a timer that is due at once. A
fail-over in between does no harm: the first step is noticed again when the log is loaded, and a classic
group that was converted and not yet rebalanced is recognised by having members and no leader.

`group.consumer.migration.policy` allows both ways, one or none.
"""

from functools import partial
from uuid import UUID

from odradek.coordinators.classic.group import ClassicGroup
from odradek.coordinators.classic.group import Member as OldMember
from odradek.coordinators.classic.rebalance import Rebalancer
from odradek.coordinators.consumer.embedded_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from odradek.coordinators.consumer.group import ConsumerGroup, assignment_epoch_record, epoch_record
from odradek.coordinators.consumer.member import (
    ClassicMember,
    ClassicProtocol,
    Member,
    current_record,
    metadata_record,
    target_record,
)
from odradek.coordinators.consumer.topics import TopicsNow, subscription_of
from odradek.coordinators.group import CONSUMER_PROTOCOL, Group, GroupSettings
from odradek.coordinators.runtime import Decision, StateRecord, Timers
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import MetadataImage
from odradek.wire.messages.join_group import JoinGroupResponse
from odradek.wire.messages.sync_group import SyncGroupResponse

POLICIES_UP = ("upgrade", "bidirectional")
POLICIES_DOWN = ("downgrade", "bidirectional")
RETRY_MS = 500


# --- up ---


def may_upgrade(group: Group, settings: GroupSettings) -> bool:
    return (
        isinstance(group, ClassicGroup)
        and settings.group_consumer_migration_policy in POLICIES_UP
        and group.protocol_type == CONSUMER_PROTOCOL
        and len(group.members) <= settings.group_consumer_max_size
    )


def upgrade(
    group: ClassicGroup, image: MetadataImage, now_ms: int
) -> tuple[ConsumerGroup, list[StateRecord]]:
    """The new consumer group, and the records that convert the classic one."""
    members = _carried_over(group, image)
    upgraded = ConsumerGroup.of(group.group_id, group.generation, members)
    return upgraded, [*group.tombstones(), *_creation(upgraded, now_ms)]


def dissolve(group: ClassicGroup, decision: Decision, now_ms: int) -> None:
    """Members that wait in the classic group are told to join again; if the upgrade fails, it is still there."""
    again = ErrorCode.REBALANCE_IN_PROGRESS
    for old in group.members.values():
        group.answer_join(old, JoinGroupResponse(error_code=again, member_id=old.member_id), decision)
        group.answer_sync(old, SyncGroupResponse(error_code=again), decision)
    decision.undo = partial(_restart_sessions, group, now_ms)


def _restart_sessions(group: ClassicGroup, now_ms: int) -> None:
    for old in group.members.values():
        group.start_session(old, now_ms)


def _carried_over(group: ClassicGroup, image: MetadataImage) -> list[Member]:
    taken: dict[UUID, frozenset[int]] = {}
    try:
        return [_carry_over(old, group.generation, image, taken) for old in group.members.values()]
    except KafkaError:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Classic group {group.group_id} cannot be upgraded: its embedded protocol is malformed.",
        ) from None


def _carry_over(
    old: OldMember, generation: int, image: MetadataImage, taken: dict[UUID, frozenset[int]]
) -> Member:
    """`taken` gives each partition one owner even if the classic leader assigned it twice."""
    protocols = tuple(ClassicProtocol(name, bytes(data)) for name, data in old.protocols.items())
    subscription = read_subscription(protocols[0].metadata)
    assigned = {}
    for topic, numbers in read_assignment(old.assignment, image).items():
        if mine := numbers - taken.get(topic, frozenset()):
            assigned[topic] = mine
            taken[topic] = taken.get(topic, frozenset()) | mine
    return Member(
        member_id=old.member_id,
        instance_id=old.instance_id,
        rack_id=subscription.rack_id,
        client_id=old.client_id,
        client_host=old.client_host,
        subscription=subscription_of(subscription.topics, None),
        rebalance_timeout_ms=old.rebalance_timeout_ms,
        classic=ClassicMember(old.session_timeout_ms, protocols),
        epoch=generation,
        previous_epoch=generation,
        assigned=assigned,
    )


def _creation(group: ConsumerGroup, now_ms: int) -> list[StateRecord]:
    group_id, members = group.group_id, group.members.values()
    return [
        *(metadata_record(group_id, member) for member in members),
        epoch_record(group_id, group.epoch, group.metadata_hash),
        *(target_record(group_id, member.member_id, member.assigned) for member in members),
        assignment_epoch_record(group_id, group.assignment_epoch, now_ms),
        *(current_record(group_id, member) for member in members),
    ]


# --- down ---


class Downgrade:
    """Two timers, due at once, one after the other: convert the group, then rebalance it."""

    def __init__(
        self,
        groups: dict[str, Group],
        topics: TopicsNow,
        settings: GroupSettings,
        timers: Timers,
        rebalancer: Rebalancer,
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._settings = settings
        self._timers = timers
        self._rebalancer = rebalancer

    def loaded(self, now_ms: int) -> None:
        for group in self._groups.values():
            if isinstance(group, ClassicGroup) and group.members and group.leader is None:
                self._schedule_rebalance(group.group_id, now_ms)

    def consider(self, group: ConsumerGroup) -> None:
        if group.members and group.classic_member_count == len(group.members):
            self._timers.schedule(("downgrade", group.group_id), 0, partial(self._convert, group.group_id))

    def _convert(self, group_id: str, now_ms: int) -> Decision | None:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or not self._may_convert(group):
            return None
        self._schedule_rebalance(group_id, now_ms)
        retry = partial(self._convert, group_id)
        decision = Decision(
            records=[*group.tombstones(), self._classic_record(group, now_ms)],
            undo=lambda: self._timers.schedule(("downgrade", group_id), now_ms + RETRY_MS, retry),
        )
        decision.note(group_id, "becomes a classic group: no member uses the consumer protocol any more")
        return decision

    def _schedule_rebalance(self, group_id: str, now_ms: int) -> None:
        self._timers.schedule(("rebalance", group_id), now_ms, partial(self._rebalance, group_id))

    def _may_convert(self, group: ConsumerGroup) -> bool:
        everyone = len(group.members)
        return (
            0 < everyone == group.classic_member_count
            and self._settings.group_consumer_migration_policy in POLICIES_DOWN
            and everyone <= self._settings.group_max_size
            and everyone in group.classic_protocols.values()
        )

    def _classic_record(self, group: ConsumerGroup, now_ms: int) -> StateRecord:
        """In the generation that most members are in; the others have to join again anyway."""
        classic = self._rebalancer.new_group(group.group_id)
        classic.protocol_type = CONSUMER_PROTOCOL
        classic.generation = max(member.epoch for member in group.members.values())
        for member in group.members.values():
            classic.add(_old_member(member))
        classic.leader = None
        classic.protocol = classic.select_protocol()
        assignments = {
            member_id: write_assignment(
                group.members[member_id].assigned, self._topics.image, old.protocols[classic.protocol]
            )
            for member_id, old in classic.members.items()
        }
        return classic.as_record(now_ms, assignments)

    def _rebalance(self, group_id: str, now_ms: int) -> Decision | None:
        group = self._rebalancer.find(group_id)
        if group is None or group.is_empty:
            return None
        decision = Decision()
        _restart_sessions(group, now_ms)
        self._rebalancer.rebalance(group, now_ms, decision, "it became a classic group again")
        return decision


def _old_member(member: Member) -> OldMember:
    assert member.classic is not None
    return OldMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=dict(member.classic.protocols),
    )
