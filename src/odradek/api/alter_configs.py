"""AlterConfigs (33): replace all settings of a topic or broker. Kept for old clients; it forgets what is not named."""

from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse


async def handle(cluster: Cluster, request: Request, message: AlterConfigsRequest) -> AlterConfigsResponse:
    response: AlterConfigsResponse = await cluster.decide(request, message)
    return response
