"""ConsumerGroupHeartbeat (68): the whole of KIP-848's protocol: join, stay, leave, be assigned.

The group's coordinator (`coordinators`) does the work; it responds once its decision is committed.

A member must be allowed to describe the topics that it names; those that its regular expression matches, and that it
may not describe, are left out.

Unlike Kafka's, a member may not subscribe to more than 5,000 topics by name: the coordinator checks all of them, for
every member, at every change.
"""

from odradek.acls.codes import Operation, Resource
from odradek.coordinators.consumer.heartbeat import HeartbeatOfOne
from odradek.errors import ErrorCode
from odradek.serving.authorizer import may_of
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

MAX_NAMES = 5_000


def handle(
    services: Services, request: Request, message: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | None:
    if len(message.subscribed_topic_names or ()) > MAX_NAMES:
        reason = f"A member may subscribe to {MAX_NAMES} topics by name; use a regular expression for more."
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=reason)
    groups = services.coordination.groups
    if services.authorizer.allows_all:
        groups.handle(request, message, message.group_id)
        return None
    may = may_of(services.authorizer, request)

    def may_describe(topic: str) -> bool:
        return may(Operation.DESCRIBE, Resource.TOPIC, topic)

    if not all(map(may_describe, message.subscribed_topic_names or ())):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    groups.handle(request, HeartbeatOfOne(message, may_describe), message.group_id)
    return None
