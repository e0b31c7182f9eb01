"""IncrementalAlterConfigs (44): set, delete, append to or subtract from single settings of a topic or broker.

Left out: broker loggers, client metrics and groups as resources (INVALID_REQUEST).
"""

from odradek.api.request import Request
from odradek.api.services import Services
from odradek.controller.configs import incremental_alter_configs
from odradek.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    services: Services, request: Request, message: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    return await services.decide(
        lambda image: incremental_alter_configs(image, message, services.config),
        lambda answer: answer.responses,
    )
