"""OffsetDelete (47): forget the offsets that a group committed to some partitions.

The work is done by the group's coordinator (`coordinators`); it answers once what it decided is committed.
"""

from odradek.api.request import Request
from odradek.api.services import Services
from odradek.wire.messages.offset_delete import OffsetDeleteRequest


def handle(services: Services, request: Request, message: OffsetDeleteRequest) -> None:
    services.groups.handle(request, message, message.group_id)
