"""DeleteTopics (20): by name or, from version 6 on, by id. Logs are renamed at once and removed later."""

from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse


async def handle(cluster: Cluster, request: Request, message: DeleteTopicsRequest) -> DeleteTopicsResponse:
    response: DeleteTopicsResponse = await cluster.decide(request, message)
    return response
