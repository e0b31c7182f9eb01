"""AllocateProducerIds (67)."""

from typing import Any

from odradek.controller.brokers import Records, allocate_producer_ids
from odradek.controller.controller import Terms
from odradek.controller.parts import Part
from odradek.metadata.image import MetadataImage
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsResponse


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, AllocateProducerIdsResponse]:
    request: Any = part.request
    records, block = allocate_producer_ids(image, request.broker_id, request.broker_epoch)
    return records, AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block))
