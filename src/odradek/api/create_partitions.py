"""CreatePartitions (37): more partitions for topics that exist; never fewer."""

from dataclasses import replace
from functools import partial

from odradek.api.creation import TOPICS_AT_ONCE
from odradek.api.parts import cut_by
from odradek.api.request import Request
from odradek.api.services import Services
from odradek.controller.topics import create_partitions
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse


async def handle(
    services: Services, request: Request, message: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    parts = await services.turns.complete(cut_by(message.topics, lambda topic: topic.name, TOPICS_AT_ONCE))
    answer = CreatePartitionsResponse()
    pace = services.turns.pace()
    for part in parts:
        await pace.step()
        decision = partial(create_partitions, request=replace(message, topics=part), rng=services.rng)
        answer.results += (await services.decide(decision)).results
    return answer
