"""UnregisterBroker (64): a broker does not come back (see `controller.requests.unregister_broker`).

Left out: forgetting a broker that is alive. Kafka does, and the broker has to be restarted.
"""

from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(
    cluster: Cluster, request: Request, message: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    response: UnregisterBrokerResponse = await cluster.decide(request, message)
    return response
