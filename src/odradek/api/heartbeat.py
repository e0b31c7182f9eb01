"""Heartbeat (12): a member of a classic group is alive, and hears of rebalances.

The group's coordinator (`coordinators`) does the work; it responds once its decision is committed.
"""

from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.heartbeat import HeartbeatRequest


def handle(services: Services, request: Request, message: HeartbeatRequest) -> None:
    services.groups.handle(request, message, message.group_id)
