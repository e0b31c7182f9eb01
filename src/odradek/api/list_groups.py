"""ListGroups (16): every group of this broker, by state and type where asked.

The group's coordinator (`coordinators`) does the work; it responds once its decision is committed.
"""

from odradek.requests.request import Request
from odradek.requests.services import Services
from odradek.wire.codec import Steps
from odradek.wire.messages.list_groups import ListGroupsRequest


def handle(services: Services, request: Request, message: ListGroupsRequest) -> Steps[None]:
    return services.groups.handle_all(request, message)
