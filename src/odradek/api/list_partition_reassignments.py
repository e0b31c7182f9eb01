"""ListPartitionReassignments (46): which partitions are on their way. The active controller responds."""

from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


async def handle(
    services: Services, request: Request, message: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    response: ListPartitionReassignmentsResponse = await services.decide(request, message)
    return response
