"""AlterClientQuotas (49): sets and removes quotas (see the module of this name in `controller.requests`).

All brokers follow a change as soon as they have the metadata: clients that are silent now stay so until their time is
over, and the next request is measured by the new limit.
"""

from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse


async def handle(
    cluster: Cluster, request: Request, message: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    response: AlterClientQuotasResponse = await cluster.decide(request, message)
    return response
