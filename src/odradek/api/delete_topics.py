"""DeleteTopics (20): by name or, from version 6 on, by id. Logs are renamed at once and removed later."""

from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse


async def handle(services: Services, request: Request, message: DeleteTopicsRequest) -> DeleteTopicsResponse:
    response: DeleteTopicsResponse = await services.decide(request, message)
    return response
