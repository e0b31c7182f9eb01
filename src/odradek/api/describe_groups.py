"""DescribeGroups (15): state and members of classic groups.

The group's coordinator (`coordinators`) does the work; it responds once its decision is committed.
"""

from odradek.serving.authorized import adding_group_operations
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.codec import Steps
from odradek.wire.messages.describe_groups import DescribeGroupsRequest


def handle(services: Services, request: Request, message: DescribeGroupsRequest) -> Steps[None]:
    groups = services.coordination.groups
    if message.include_authorized_operations:
        return groups.handle_many(request, message, adding_group_operations(services.authorizer, request))
    return groups.handle_many(request, message)
