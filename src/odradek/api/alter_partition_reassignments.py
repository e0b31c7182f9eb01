"""AlterPartitionReassignments (45): an operator moves partitions (see the module of this name in
`controller.requests`)."""

from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)


async def handle(
    cluster: Cluster, request: Request, message: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    response: AlterPartitionReassignmentsResponse = await cluster.decide(request, message)
    return response
