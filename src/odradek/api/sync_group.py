"""SyncGroup (14): the leader of a classic group hands out the assignment, everybody else collects it.

The work is done by the group's coordinator (`coordinators`); it answers once what it decided is committed.
"""

from odradek.requests.request import Request
from odradek.requests.services import Services
from odradek.wire.messages.sync_group import SyncGroupRequest


def handle(services: Services, request: Request, message: SyncGroupRequest) -> None:
    services.groups.handle(request, message, message.group_id)
