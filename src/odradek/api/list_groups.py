"""ListGroups (16): every group of this broker, by state and type where asked.

The work is done by the group's coordinator (`coordinators`); it answers once what it decided is committed.
"""

from odradek.requests.request import Request
from odradek.requests.services import Services
from odradek.wire.codec import Steps
from odradek.wire.messages.list_groups import ListGroupsRequest


def handle(services: Services, request: Request, message: ListGroupsRequest) -> Steps[None]:
    return services.groups.handle_all(request, message)
