"""AlterPartition (56): the leader of a partition proposes another ISR to the controller."""

from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


async def handle(
    cluster: Cluster, request: Request, message: AlterPartitionRequest
) -> AlterPartitionResponse:
    response: AlterPartitionResponse = await cluster.decide(request, message)
    return response
