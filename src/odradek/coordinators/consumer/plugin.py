"""Consumer groups as a part of the group coordinator: which requests and records they take."""

from odradek.coordinators.consumer.classic_members import ClassicMembers
from odradek.coordinators.consumer.describe import describe
from odradek.coordinators.consumer.heartbeat import ConsumerGroups, HeartbeatOfOne
from odradek.coordinators.consumer.migration import Downgrade
from odradek.coordinators.consumer.replaying import Replay
from odradek.coordinators.consumer.topics import TopicsNow
from odradek.coordinators.group import GroupType
from odradek.coordinators.groups import GroupCoordinator
from odradek.coordinators.runtime import Decision, Token
from odradek.errors import ErrorCode
from odradek.model import Caller
from odradek.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest
from odradek.wire.messages.leave_group import LeaveGroupRequest
from odradek.wire.messages.sync_group import SyncGroupRequest


def plug_in(coordinator: GroupCoordinator, topics: TopicsNow) -> ConsumerGroups:
    """`topics` is shared by all shards of a broker; its owner publishes new images to it."""
    consumer_groups = ConsumerGroups(
        coordinator.groups, topics, coordinator.settings, coordinator.timers, coordinator.rng
    )
    classic_members = ClassicMembers(consumer_groups)
    downgrade = Downgrade(
        coordinator.groups, topics, coordinator.settings, coordinator.timers, coordinator.rebalancer
    )
    replay = Replay(consumer_groups, downgrade)
    coordinator.replayers.update(replay.by_key)
    coordinator.load_hooks += [replay.loaded, downgrade.loaded]
    coordinator.home_types[ConsumerGroupHeartbeatRequest] = GroupType.CONSUMER
    handlers = coordinator.handlers
    handlers[ConsumerGroupHeartbeatRequest, GroupType.CONSUMER] = consumer_groups.heartbeat
    handlers[ConsumerGroupHeartbeatRequest, GroupType.CLASSIC] = consumer_groups.heartbeat
    coordinator.home_types[HeartbeatOfOne] = GroupType.CONSUMER
    handlers[HeartbeatOfOne, GroupType.CONSUMER] = consumer_groups.heartbeat_of_one
    handlers[HeartbeatOfOne, GroupType.CLASSIC] = consumer_groups.heartbeat_of_one
    handlers[JoinGroupRequest, GroupType.CONSUMER] = classic_members.join
    handlers[SyncGroupRequest, GroupType.CONSUMER] = classic_members.sync
    handlers[HeartbeatRequest, GroupType.CONSUMER] = classic_members.heartbeat
    handlers[LeaveGroupRequest, GroupType.CONSUMER] = classic_members.leave
    coordinator.refusals[ConsumerGroupHeartbeatRequest] = _refuse_heartbeat
    coordinator.refusals[HeartbeatOfOne] = _refuse_heartbeat

    def handle_describe(
        request: ConsumerGroupDescribeRequest, version: int, caller: Caller, token: Token, now_ms: int
    ) -> Decision:
        default_assignor = coordinator.settings.group_consumer_assignors[0]
        described = [
            describe(group_id, coordinator.groups.get(group_id), topics.image, default_assignor)
            for group_id in request.group_ids
        ]
        return Decision(responses=[(token, ConsumerGroupDescribeResponse(groups=described))])

    handlers[ConsumerGroupDescribeRequest, None] = handle_describe
    coordinator.refusals[ConsumerGroupDescribeRequest] = _refuse_describe
    return consumer_groups


def _refuse_heartbeat(
    request: ConsumerGroupHeartbeatRequest | HeartbeatOfOne, code: ErrorCode
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code)


def _refuse_describe(request: ConsumerGroupDescribeRequest, code: ErrorCode) -> ConsumerGroupDescribeResponse:
    groups = [DescribedGroup(error_code=code, group_id=group_id) for group_id in request.group_ids]
    return ConsumerGroupDescribeResponse(groups=groups)
