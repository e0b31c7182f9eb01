"""JoinGroup (11): enter a classic group, or stay in it when it rebalances.

The group's coordinator (`coordinators`) does the work; it responds once its decision is committed.
A member that offers more than a thousand protocols is refused: every other member's would be compared with them.
"""

from odradek.errors import ErrorCode
from odradek.serving.coordination import Coordination
from odradek.serving.request import Request
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

MAX_PROTOCOLS = 1_000


def handle(
    coordination: Coordination, request: Request, message: JoinGroupRequest
) -> JoinGroupResponse | None:
    if len(message.protocols) > MAX_PROTOCOLS:
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return JoinGroupResponse(error_code=code, member_id=message.member_id)
    coordination.groups.handle(request, message, message.group_id)
    return None
