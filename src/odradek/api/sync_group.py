"""SyncGroup (14): the leader of a classic group hands out the assignment, everybody else collects it.

The group's coordinator (`coordinators`) does the work; it responds once its decision is committed.
"""

from odradek.serving.coordination import Coordination
from odradek.serving.request import Request
from odradek.wire.messages.sync_group import SyncGroupRequest


def handle(coordination: Coordination, request: Request, message: SyncGroupRequest) -> None:
    coordination.groups.handle(request, message, message.group_id)
