"""AlterConfigs (33)."""

from typing import Any

from odradek.config.broker import BrokerConfig
from odradek.controller.configs import Records, alter_configs
from odradek.controller.controller import Terms
from odradek.controller.parts import Part, cut_resources
from odradek.metadata.image import MetadataImage
from odradek.wire.codec import Steps
from odradek.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

ITEMS = "responses"


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, AlterConfigsResponse]:
    request: Any = part.request
    return alter_configs(image, request, terms.config)


def cut(image: MetadataImage, request: AlterConfigsRequest, config: BrokerConfig) -> Steps[list[Part]]:
    return cut_resources(request)
