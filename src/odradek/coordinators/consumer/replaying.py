"""The log's records of consumer groups, applied to the registry: when a shard loads, and after
it wrote.

Every record may come first (compaction keeps only the last of each key), so each creates the group and the
member in it. A tombstone for something that does not exist has no effect.
"""

from collections.abc import Callable
from typing import Any

from odradek.coordinators import records
from odradek.coordinators.consumer.group import ConsumerGroup
from odradek.coordinators.consumer.heartbeat import ConsumerGroups
from odradek.coordinators.consumer.member import MemberState
from odradek.coordinators.consumer.migration import Downgrade

Replayer = Callable[[Any, Any | None], None]


class Replay:
    def __init__(self, consumer_groups: ConsumerGroups, downgrade: Downgrade) -> None:
        self._consumer_groups = consumer_groups
        self._downgrade = downgrade
        self._groups = consumer_groups.groups
        self.by_key: dict[type[Any], Replayer] = {
            records.ConsumerGroupMetadataKey: self._epoch,
            records.ConsumerGroupPartitionMetadataKey: self._partition_metadata,
            records.ConsumerGroupMemberMetadataKey: self._member,
            records.ConsumerGroupTargetAssignmentMetadataKey: self._assignment_epoch,
            records.ConsumerGroupTargetAssignmentMemberKey: self._target,
            records.ConsumerGroupCurrentMemberAssignmentKey: self._current,
            records.ConsumerGroupRegularExpressionKey: self._regex,
        }

    def loaded(self, now_ms: int) -> None:
        """Every member has a whole session, and a whole rebalance, from now on."""
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                for member in group.members.values():
                    self._consumer_groups.start_session_of(group.group_id, member, now_ms)
                    if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                        self._consumer_groups.start_revocation(group.group_id, member, now_ms)

    def _group(self, group_id: str, value: Any | None) -> ConsumerGroup | None:
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        # A group of another type without a record of its own exists only for its offsets: it is replaced.
        if value is None or (group is not None and (group.protocol_type or not group.is_empty)):
            return None
        created = self._groups[group_id] = ConsumerGroup(group_id)
        return created

    def _epoch(
        self, key: records.ConsumerGroupMetadataKey, value: records.ConsumerGroupMetadataValue | None
    ) -> None:
        group = self._group(key.group_id, value)
        if group is not None and value is not None:
            group.replay_epoch(value)
        elif group is not None:
            del self._groups[key.group_id]

    def _partition_metadata(
        self,
        key: records.ConsumerGroupPartitionMetadataKey,
        value: records.ConsumerGroupPartitionMetadataValue | None,
    ) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.has_partition_metadata_record = value is not None

    def _member(
        self,
        key: records.ConsumerGroupMemberMetadataKey,
        value: records.ConsumerGroupMemberMetadataValue | None,
    ) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.replay_member(key.member_id, value)
            if value is None:
                self._consumer_groups.forget_timers(key.group_id, key.member_id)
            self._downgrade.consider(group)

    def _assignment_epoch(
        self,
        key: records.ConsumerGroupTargetAssignmentMetadataKey,
        value: records.ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.replay_assignment_epoch(value)

    def _target(
        self,
        key: records.ConsumerGroupTargetAssignmentMemberKey,
        value: records.ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.replay_target(key.member_id, value)

    def _current(
        self,
        key: records.ConsumerGroupCurrentMemberAssignmentKey,
        value: records.ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.replay_current(key.member_id, value)

    def _regex(
        self,
        key: records.ConsumerGroupRegularExpressionKey,
        value: records.ConsumerGroupRegularExpressionValue | None,
    ) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.replay_regex(key.regular_expression, value)
