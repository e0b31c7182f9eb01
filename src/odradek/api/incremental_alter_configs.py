"""IncrementalAlterConfigs (44): set, delete, append to or subtract from single settings of a topic, broker or group.

What is accepted takes effect at once; what only a restart could change is refused, as is what no topic could be created
with.

Left out: broker loggers and client metrics as resources (INVALID_REQUEST).
"""

from dataclasses import replace
from functools import partial

from odradek.api.parts import RESOURCES_AT_ONCE, cut_by
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
    parts = await services.turns.complete(
        cut_by(message.resources, lambda item: (item.resource_type, item.resource_name), RESOURCES_AT_ONCE)
    )
    answer = IncrementalAlterConfigsResponse()
    pace = services.turns.pace()
    for part in parts:
        await pace.step()
        decision = partial(
            incremental_alter_configs, request=replace(message, resources=part), config=services.config
        )
        answer.responses += (await services.decide(decision)).responses
    return answer
