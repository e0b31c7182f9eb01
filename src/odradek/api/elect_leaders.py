"""ElectLeaders (43): an operator wants other leaders (see `controller.requests.elect_leaders`)."""

from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse


async def handle(services: Services, request: Request, message: ElectLeadersRequest) -> ElectLeadersResponse:
    response: ElectLeadersResponse = await services.decide(request, message)
    return response
