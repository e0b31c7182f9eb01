"""ConsumerGroupDescribe (69): state, members and assignments of KIP-848 groups.

The work is done by the group's coordinator (`coordinators`); it answers once what it decided is committed.
"""

from odradek.api.request import Request
from odradek.api.services import Services
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest


def handle(services: Services, request: Request, message: ConsumerGroupDescribeRequest) -> None:
    services.groups.handle_many(request, message)
