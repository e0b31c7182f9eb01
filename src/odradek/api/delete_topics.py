"""DeleteTopics (20): by name or, from version 6 on, by id. Logs are renamed at once and removed later."""

from odradek.api.request import Request
from odradek.api.services import Services
from odradek.controller.topics import delete_topics
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse


async def handle(services: Services, request: Request, message: DeleteTopicsRequest) -> DeleteTopicsResponse:
    return await services.decide(
        lambda image: delete_topics(image, message, services.config, request.version)
    )
