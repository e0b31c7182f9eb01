"""OffsetCommit (8): how far a group has read, by member or, without membership, by anybody.

The work is done by the group's coordinator (`coordinators`); it answers once what it decided is committed.
"""

from odradek.api.request import Request
from odradek.api.services import Services
from odradek.wire.messages.offset_commit import OffsetCommitRequest


def handle(services: Services, request: Request, message: OffsetCommitRequest) -> None:
    services.groups.handle(request, message, message.group_id)
