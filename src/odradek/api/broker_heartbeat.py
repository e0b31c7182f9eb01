"""BrokerHeartbeat (63): a broker is alive, and says how far it has followed the metadata log.

Left out: offline and cordoned log directories.
"""

from odradek.requests.request import Request
from odradek.requests.services import Services
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


async def handle(
    services: Services, request: Request, message: BrokerHeartbeatRequest
) -> BrokerHeartbeatResponse:
    response: BrokerHeartbeatResponse = await services.decide(request, message)
    return response
