"""ListPartitionReassignments (46): which partitions are on their way. The active controller responds."""

from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


async def handle(
    cluster: Cluster, request: Request, message: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    response: ListPartitionReassignmentsResponse = await cluster.decide(request, message)
    return response
