"""ControllerRegistration (70): a controller that starts says where it can be reached."""

from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)


async def handle(
    cluster: Cluster, request: Request, message: ControllerRegistrationRequest
) -> ControllerRegistrationResponse:
    response: ControllerRegistrationResponse = await cluster.decide(request, message)
    return response
