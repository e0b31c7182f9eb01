"""CreateTopics (19)."""

from dataclasses import replace
from typing import Any

from odradek.config.broker import BrokerConfig
from odradek.config.topic_definitions import MAX_PARTITIONS_PER_REQUEST
from odradek.controller.controller import Terms
from odradek.controller.parts import Part, cut_by
from odradek.controller.topics import Records, count_partitions, create_topics
from odradek.metadata.image import MetadataImage, metric_name
from odradek.wire.codec import Steps
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

TOPICS_AT_ONCE = 50  # in one turn of the event loop


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, CreateTopicsResponse]:
    request: Any = part.request
    return create_topics(image, request, terms.config, terms.rng, part.partition_count, terms.spend)


def cut(image: MetadataImage, request: CreateTopicsRequest, config: BrokerConfig) -> Steps[list[Part]]:
    """A few topics at a time. Topics whose names may collide stay together, unless all are refused anyway."""
    partition_count = 0
    for topic in request.topics:
        partition_count += count_partitions(topic, config)
        yield
    if partition_count > MAX_PARTITIONS_PER_REQUEST:
        parts = yield from cut_by(request.topics, _name, TOPICS_AT_ONCE)
    else:
        parts = yield from cut_by(request.topics, _metric_name, TOPICS_AT_ONCE, _name)
    return [Part(replace(request, topics=part), partition_count) for part in parts]


def _name(topic: CreatableTopic) -> str:
    return topic.name


def _metric_name(topic: CreatableTopic) -> str:
    return metric_name(topic.name)
