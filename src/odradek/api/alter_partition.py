"""AlterPartition (56): the leader of a partition proposes another ISR to the controller."""

from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


async def handle(
    services: Services, request: Request, message: AlterPartitionRequest
) -> AlterPartitionResponse:
    response: AlterPartitionResponse = await services.decide(request, message)
    return response
