"""ConsumerGroupHeartbeat (68): the whole of KIP-848's protocol: join, stay, leave, be assigned.

The group's coordinator (`coordinators`) does the work; it responds once its decision is committed.

Unlike Kafka's, a member may not subscribe to more than 5,000 topics by name: the coordinator checks all of them, for
every member, at every change.
"""

from odradek.errors import ErrorCode
from odradek.serving.coordination import Coordination
from odradek.serving.request import Request
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

MAX_NAMES = 5_000


def handle(
    coordination: Coordination, request: Request, message: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | None:
    if len(message.subscribed_topic_names or ()) > MAX_NAMES:
        reason = f"A member may subscribe to {MAX_NAMES} topics by name; use a regular expression for more."
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=reason)
    coordination.groups.handle(request, message, message.group_id)
    return None
