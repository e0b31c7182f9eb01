"""CreatePartitions (37)."""

from dataclasses import replace
from typing import Any

from odradek.config.broker import BrokerConfig
from odradek.controller.controller import Terms
from odradek.controller.parts import Part, cut_by
from odradek.controller.topics import Records, create_partitions
from odradek.metadata.image import MetadataImage
from odradek.wire.codec import Steps
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

TOPICS_AT_ONCE = 50  # in one turn of the event loop


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, CreatePartitionsResponse]:
    request: Any = part.request
    return create_partitions(image, request, terms.rng, terms.spend)


def cut(image: MetadataImage, request: CreatePartitionsRequest, config: BrokerConfig) -> Steps[list[Part]]:
    parts = yield from cut_by(request.topics, lambda topic: topic.name, TOPICS_AT_ONCE)
    return [Part(replace(request, topics=part)) for part in parts]
