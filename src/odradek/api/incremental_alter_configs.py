"""IncrementalAlterConfigs (44): set, delete, append to or subtract from single settings of a topic, broker or group.

What is accepted takes effect at once; what only a restart could change is refused, as is what no topic could be created
with.

Left out: broker loggers and client metrics as resources (INVALID_REQUEST).
"""

from odradek.requests.request import Request
from odradek.requests.services import Services
from odradek.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    services: Services, request: Request, message: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    response: IncrementalAlterConfigsResponse = await services.decide(request, message)
    return response
