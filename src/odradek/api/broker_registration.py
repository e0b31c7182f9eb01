"""BrokerRegistration (62): a broker that starts says where it can be reached, and gets a broker epoch.

It is fenced until its heartbeats say that it has caught up with the metadata log (see
`controller.requests.broker_registration`).
"""

from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


async def handle(
    cluster: Cluster, request: Request, message: BrokerRegistrationRequest
) -> BrokerRegistrationResponse:
    response: BrokerRegistrationResponse = await cluster.decide(request, message)
    return response
