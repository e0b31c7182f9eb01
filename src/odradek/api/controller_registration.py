"""ControllerRegistration (70): a controller that starts says where it can be reached."""

from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)


async def handle(
    services: Services, request: Request, message: ControllerRegistrationRequest
) -> ControllerRegistrationResponse:
    response: ControllerRegistrationResponse = await services.decide(request, message)
    return response
