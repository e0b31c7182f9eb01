"""AlterConfigs (33): replace all settings of a topic or broker. Kept for old clients; it forgets what is not named."""

from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse


async def handle(services: Services, request: Request, message: AlterConfigsRequest) -> AlterConfigsResponse:
    response: AlterConfigsResponse = await services.decide(request, message)
    return response
