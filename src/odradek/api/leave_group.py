"""LeaveGroup (13): members leave a classic group; several at once, by instance id too, from version 3 on.

The work is done by the group's coordinator (`coordinators`); it answers once what it decided is committed.
"""

from odradek.api.request import Request
from odradek.api.services import Services
from odradek.wire.messages.leave_group import LeaveGroupRequest


def handle(services: Services, request: Request, message: LeaveGroupRequest) -> None:
    services.groups.handle(request, message, message.group_id)
