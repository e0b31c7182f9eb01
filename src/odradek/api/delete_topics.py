"""DeleteTopics (20): by name or, from version 6 on, by id. Logs are renamed at once and removed later."""

from collections.abc import Hashable
from dataclasses import replace
from functools import partial

from odradek.api.parts import cut_by
from odradek.api.request import Request
from odradek.api.services import Services
from odradek.controller.topics import delete_topics
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

TOPICS_AT_ONCE = 10  # in one turn of the event loop


async def handle(services: Services, request: Request, message: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """A few topics at a time; one that is named twice, maybe by name and by id, in both places at once."""
    image = services.image

    def identity(state: DeleteTopicState) -> Hashable:
        topic = image.topics_by_id.get(state.topic_id) if state.name is None else image.topics.get(state.name)
        return (state.name, state.topic_id) if topic is None else topic.id

    states = [*message.topics, *(DeleteTopicState(name=name) for name in message.topic_names)]
    parts = await services.turns.complete(cut_by(states, identity, TOPICS_AT_ONCE))
    answer = DeleteTopicsResponse()
    pace = services.turns.pace()
    for part in parts:
        await pace.step()
        some = replace(message, topics=part, topic_names=[])
        decision = partial(delete_topics, request=some, config=services.config, version=request.version)
        answer.responses += (await services.decide(decision)).responses
    return answer
