"""DescribeGroups (15): state and members of classic groups.

The group's coordinator (`coordinators`) does the work; it responds once its decision is committed.
"""

from odradek.serving.authorized import GROUP_OPERATIONS
from odradek.serving.coordination import Coordination
from odradek.serving.request import Request
from odradek.wire.codec import Steps
from odradek.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse


def handle(coordination: Coordination, request: Request, message: DescribeGroupsRequest) -> Steps[None]:
    if message.include_authorized_operations:
        return coordination.groups.handle_many(request, message, _add_operations)
    return coordination.groups.handle_many(request, message)


def _add_operations(answer: DescribeGroupsResponse) -> DescribeGroupsResponse:
    for group in answer.groups:
        if not group.error_code:
            group.authorized_operations = GROUP_OPERATIONS
    return answer
