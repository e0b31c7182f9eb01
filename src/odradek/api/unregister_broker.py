"""UnregisterBroker (64): a broker does not come back (see `controller.requests.unregister_broker`).

Left out: forgetting a broker that is alive. Kafka does, and the broker has to be restarted.
"""

from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(
    services: Services, request: Request, message: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    response: UnregisterBrokerResponse = await services.decide(request, message)
    return response
