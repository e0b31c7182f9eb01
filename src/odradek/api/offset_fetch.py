"""OffsetFetch (9): what groups committed; many groups at once from version 8 on.

The work is done by the groups' coordinators (`coordinators`).
"""

from odradek.api.request import Request
from odradek.api.services import Services
from odradek.wire.messages.offset_fetch import OffsetFetchRequest

MANY_GROUPS_SINCE = 8


def handle(services: Services, request: Request, message: OffsetFetchRequest) -> None:
    if request.version >= MANY_GROUPS_SINCE:
        services.groups.handle_many(request, message)
    else:
        services.groups.handle(request, message, message.group_id)
