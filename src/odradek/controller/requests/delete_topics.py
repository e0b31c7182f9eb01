"""DeleteTopics (20)."""

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from odradek.config.broker import BrokerConfig
from odradek.controller.controller import Terms
from odradek.controller.parts import Part, cut_by
from odradek.controller.topics import Records, delete_topics
from odradek.metadata.image import MetadataImage
from odradek.wire.codec import Steps
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

TOPICS_AT_ONCE = 10  # in one turn of the event loop


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, DeleteTopicsResponse]:
    request: Any = part.request
    return delete_topics(image, request, terms.config, terms.version, terms.spend)


def cut(image: MetadataImage, request: DeleteTopicsRequest, config: BrokerConfig) -> Steps[list[Part]]:
    """A few topics at a time. A topic that is named twice, perhaps by name and by id, is decided in one part."""

    def identity(state: DeleteTopicState) -> Hashable:
        topic = image.topics_by_id.get(state.topic_id) if state.name is None else image.topics.get(state.name)
        return (state.name, state.topic_id) if topic is None else topic.id

    states = [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]
    parts = yield from cut_by(states, identity, TOPICS_AT_ONCE)
    return [Part(replace(request, topics=part, topic_names=[])) for part in parts]
