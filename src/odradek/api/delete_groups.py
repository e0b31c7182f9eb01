"""DeleteGroups (42): remove groups without members, and all they committed.

The group's coordinator (`coordinators`) does the work; it responds once its decision is committed.
"""

from odradek.serving.coordination import Coordination
from odradek.serving.request import Request
from odradek.wire.codec import Steps
from odradek.wire.messages.delete_groups import DeleteGroupsRequest


def handle(coordination: Coordination, request: Request, message: DeleteGroupsRequest) -> Steps[None]:
    return coordination.groups.handle_many(request, message)
