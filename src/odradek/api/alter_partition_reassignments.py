"""AlterPartitionReassignments (45): an operator moves partitions (see the module of this name in
`controller.requests`)."""

from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)


async def handle(
    services: Services, request: Request, message: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    response: AlterPartitionReassignmentsResponse = await services.decide(request, message)
    return response
