"""DescribeGroups (15): state and members of classic groups.

The work is done by the group's coordinator (`coordinators`); it answers once what it decided is committed.
"""

from odradek.api.request import Request
from odradek.api.services import Services
from odradek.wire.messages.describe_groups import DescribeGroupsRequest


def handle(services: Services, request: Request, message: DescribeGroupsRequest) -> None:
    services.groups.handle_many(request, message)
