"""LeaveGroup (13): members leave a classic group; several at once, by instance id too, from version 3 on.

The group's coordinator (`coordinators`) does the work; it responds once its decision is committed.
"""

from dataclasses import replace

from odradek.apis.items import cut
from odradek.serving.coordination import Coordination
from odradek.serving.request import Request
from odradek.wire.codec import Steps
from odradek.wire.messages.leave_group import LeaveGroupRequest


def handle(coordination: Coordination, request: Request, message: LeaveGroupRequest) -> Steps[None]:
    parts = yield from cut(message.members)
    messages = [replace(message, members=part) for part in parts]
    yield from coordination.groups.handle_parts(request, messages, message.group_id)
