"""DescribeGroups (15): state and members of classic groups.

The group's coordinator (`coordinators`) does the work; it responds once its decision is committed.
"""

from odradek.apis.row import Resource
from odradek.serving.authorized import operations
from odradek.serving.coordination import Amend
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.codec import Steps
from odradek.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse


def handle(services: Services, request: Request, message: DescribeGroupsRequest) -> Steps[None]:
    if message.include_authorized_operations:
        return services.coordination.groups.handle_many(
            request, message, _adding_operations(services, request)
        )
    return services.coordination.groups.handle_many(request, message)


def _adding_operations(services: Services, request: Request) -> Amend:
    def amend(answer: DescribeGroupsResponse) -> DescribeGroupsResponse:
        for group in answer.groups:
            if not group.error_code:
                group.authorized_operations = operations(
                    services.authorizer, request, Resource.GROUP, group.group_id
                )
        return answer

    return amend
