"""Consumer groups as a part of the group coordinator: which requests and records they take."""

from odradek.coordinators.consumer.describe import describe
from odradek.coordinators.consumer.heartbeat import ConsumerGroups
from odradek.coordinators.consumer.replaying import Replay
from odradek.coordinators.consumer.topics import TopicsNow
from odradek.coordinators.group import GroupType
from odradek.coordinators.groups import GroupCoordinator
from odradek.coordinators.runtime import Decision, RequestContext, Token
from odradek.errors import ErrorCode
from odradek.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def plug_in(coordinator: GroupCoordinator, topics: TopicsNow) -> ConsumerGroups:
    """`topics` is shared by all shards of a broker; whoever owns it publishes new images to it."""
    consumer_groups = ConsumerGroups(
        coordinator.groups, topics, coordinator.settings, coordinator.timers, coordinator.rng
    )
    replay = Replay(consumer_groups)
    coordinator.replayers.update(replay.by_key)
    coordinator.load_hooks.append(replay.loaded)
    coordinator.handlers[ConsumerGroupHeartbeatRequest, GroupType.CONSUMER] = consumer_groups.heartbeat
    coordinator.refusals[ConsumerGroupHeartbeatRequest] = _refuse_heartbeat

    def handle_describe(
        request: ConsumerGroupDescribeRequest, context: RequestContext, token: Token, now_ms: int
    ) -> Decision:
        default_assignor = coordinator.settings.group_consumer_assignors[0]
        described = [
            describe(group_id, coordinator.groups.get(group_id), topics.image, default_assignor)
            for group_id in request.group_ids
        ]
        return Decision(answers=[(token, ConsumerGroupDescribeResponse(groups=described))])

    coordinator.handlers[ConsumerGroupDescribeRequest, None] = handle_describe
    coordinator.refusals[ConsumerGroupDescribeRequest] = _refuse_describe
    return consumer_groups


def _refuse_heartbeat(
    request: ConsumerGroupHeartbeatRequest, code: ErrorCode
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code)


def _refuse_describe(request: ConsumerGroupDescribeRequest, code: ErrorCode) -> ConsumerGroupDescribeResponse:
    groups = [DescribedGroup(error_code=code, group_id=group_id) for group_id in request.group_ids]
    return ConsumerGroupDescribeResponse(groups=groups)
