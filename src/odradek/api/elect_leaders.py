"""ElectLeaders (43): an operator wants other leaders (see `controller.requests.elect_leaders`)."""

from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse


async def handle(cluster: Cluster, request: Request, message: ElectLeadersRequest) -> ElectLeadersResponse:
    response: ElectLeadersResponse = await cluster.decide(request, message)
    return response
