"""Heartbeat (12): a member of a classic group is alive, and hears of rebalances.

The group's coordinator (`coordinators`) does the work; it responds once its decision is committed.
"""

from odradek.serving.coordination import Coordination
from odradek.serving.request import Request
from odradek.wire.messages.heartbeat import HeartbeatRequest


def handle(coordination: Coordination, request: Request, message: HeartbeatRequest) -> None:
    coordination.groups.handle(request, message, message.group_id)
