"""AllocateProducerIds (67): a block of producer ids that one broker alone gives out."""

from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)


async def handle(
    cluster: Cluster, request: Request, message: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    response: AllocateProducerIdsResponse = await cluster.decide(request, message)
    return response
