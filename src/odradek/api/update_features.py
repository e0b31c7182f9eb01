"""UpdateFeatures (57): the level of a feature of the whole cluster (see `controller.requests.update_features`)."""

from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


async def handle(
    cluster: Cluster, request: Request, message: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    response: UpdateFeaturesResponse = await cluster.decide(request, message)
    return response
