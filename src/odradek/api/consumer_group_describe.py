"""ConsumerGroupDescribe (69): state, members and assignments of KIP-848 groups.

The group's coordinator (`coordinators`) does the work; it responds once its decision is committed.
"""

from odradek.serving.authorized import GROUP_OPERATIONS
from odradek.serving.coordination import Coordination
from odradek.serving.request import Request
from odradek.wire.codec import Steps
from odradek.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)


def handle(
    coordination: Coordination, request: Request, message: ConsumerGroupDescribeRequest
) -> Steps[None]:
    if message.include_authorized_operations:
        return coordination.groups.handle_many(request, message, _add_operations)
    return coordination.groups.handle_many(request, message)


def _add_operations(answer: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse:
    for group in answer.groups:
        if not group.error_code:
            group.authorized_operations = GROUP_OPERATIONS
    return answer
