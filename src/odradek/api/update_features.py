"""UpdateFeatures (57): the level of a feature of the whole cluster (see `controller.requests.update_features`)."""

from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


async def handle(
    services: Services, request: Request, message: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    response: UpdateFeaturesResponse = await services.decide(request, message)
    return response
