"""Heartbeat (12): a member of a classic group is alive, and hears of rebalances.

The work is done by the group's coordinator (`coordinators`); it answers once what it decided is committed.
"""

from odradek.requests.request import Request
from odradek.requests.services import Services
from odradek.wire.messages.heartbeat import HeartbeatRequest


def handle(services: Services, request: Request, message: HeartbeatRequest) -> None:
    services.groups.handle(request, message, message.group_id)
