"""AllocateProducerIds (67): a block of producer ids that one broker alone gives out."""

from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)


async def handle(
    services: Services, request: Request, message: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    response: AllocateProducerIdsResponse = await services.decide(request, message)
    return response
