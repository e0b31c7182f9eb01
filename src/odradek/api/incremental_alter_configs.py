"""IncrementalAlterConfigs (44): set, delete, append to or subtract from single settings of a topic, broker or group.

Accepted changes take effect at once; settings that only a restart can change are refused, and so are values with which
no topic could be created.

Left out: broker loggers and client metrics as resources (INVALID_REQUEST).
"""

from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    cluster: Cluster, request: Request, message: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    response: IncrementalAlterConfigsResponse = await cluster.decide(request, message)
    return response
