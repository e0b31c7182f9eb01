"""ListGroups (16): every group of this broker, by state and type where asked.

The group's coordinator (`coordinators`) does the work; it responds once its decision is committed.
"""

from odradek.apis.row import May, Operation, Resource
from odradek.serving.coordination import Coordination
from odradek.serving.request import Request
from odradek.wire.codec import Steps
from odradek.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def hide(message: ListGroupsRequest, response: ListGroupsResponse, may: May) -> None:
    """Whoever may describe the cluster sees every group."""
    if not may(Operation.DESCRIBE, Resource.CLUSTER, ""):
        response.groups = [
            group for group in response.groups if may(Operation.DESCRIBE, Resource.GROUP, group.group_id)
        ]


def handle(coordination: Coordination, request: Request, message: ListGroupsRequest) -> Steps[None]:
    return coordination.groups.handle_all(request, message)
