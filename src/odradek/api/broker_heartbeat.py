"""BrokerHeartbeat (63): a broker is alive, and says how far it has followed the metadata log.

It also says which of its log directories are cordoned (KIP-1066).

Left out: offline log directories.
"""

from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


async def handle(
    cluster: Cluster, request: Request, message: BrokerHeartbeatRequest
) -> BrokerHeartbeatResponse:
    response: BrokerHeartbeatResponse = await cluster.decide(request, message)
    return response
