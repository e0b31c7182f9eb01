"""IncrementalAlterConfigs (44)."""

from typing import Any

from odradek.config.broker import BrokerConfig
from odradek.controller.configs import Records, incremental_alter_configs
from odradek.controller.controller import Terms
from odradek.controller.eligible import forget_eligible
from odradek.controller.parts import Part, cut_resources
from odradek.metadata.image import MetadataImage
from odradek.wire.codec import Steps
from odradek.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, IncrementalAlterConfigsResponse]:
    request: Any = part.request
    records, response = incremental_alter_configs(image, request, terms.config)
    return [*records, *forget_eligible(image, records)], response


def cut(
    image: MetadataImage, request: IncrementalAlterConfigsRequest, config: BrokerConfig
) -> Steps[list[Part]]:
    return cut_resources(request)
