"""JoinGroup (11): enter a classic group, or stay in it when it rebalances.

The work is done by the group's coordinator (`coordinators`); it answers once what it decided is committed.
"""

from odradek.api.request import Request
from odradek.api.services import Services
from odradek.wire.messages.join_group import JoinGroupRequest


def handle(services: Services, request: Request, message: JoinGroupRequest) -> None:
    services.groups.handle(request, message, message.group_id)
