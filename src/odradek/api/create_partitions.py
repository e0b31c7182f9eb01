"""CreatePartitions (37): more partitions for topics that exist; never fewer."""

from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse


async def handle(
    services: Services, request: Request, message: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    response: CreatePartitionsResponse = await services.decide(request, message)
    return response
