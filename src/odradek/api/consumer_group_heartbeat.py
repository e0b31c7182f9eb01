"""ConsumerGroupHeartbeat (68): the whole of KIP-848's protocol: join, stay, leave, be assigned.

The work is done by the group's coordinator (`coordinators`); it answers once what it decided is committed.
"""

from odradek.api.request import Request
from odradek.api.services import Services
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def handle(services: Services, request: Request, message: ConsumerGroupHeartbeatRequest) -> None:
    services.groups.handle(request, message, message.group_id)
