"""CreatePartitions (37): more partitions for topics that exist; never fewer."""

from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse


async def handle(
    cluster: Cluster, request: Request, message: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    response: CreatePartitionsResponse = await cluster.decide(request, message)
    return response
