"""AlterConfigs (33): replace all settings of a topic or broker. Kept for old clients; it forgets what is not named."""

from dataclasses import replace
from functools import partial

from odradek.api.parts import RESOURCES_AT_ONCE, cut_by
from odradek.api.request import Request
from odradek.api.services import Services
from odradek.controller.configs import alter_configs
from odradek.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse


async def handle(services: Services, request: Request, message: AlterConfigsRequest) -> AlterConfigsResponse:
    parts = await services.turns.complete(
        cut_by(message.resources, lambda item: (item.resource_type, item.resource_name), RESOURCES_AT_ONCE)
    )
    answer = AlterConfigsResponse()
    pace = services.turns.pace()
    for part in parts:
        await pace.step()
        decision = partial(alter_configs, request=replace(message, resources=part), config=services.config)
        answer.responses += (await services.decide(decision)).responses
    return answer
