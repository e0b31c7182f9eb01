"""CreateTopics (19): new topics, each with its own outcome.

The checks and what is written are the controller's (`controller.topics`). The answer leaves once the topics are
committed and this broker leads its partitions of them. If the metadata log cannot be written, as on a full disk, each
topic is refused with KAFKA_STORAGE_ERROR; so it is with every API that changes metadata.

Left out: `timeout_ms`: creation does not outlast it on one broker.
"""

from dataclasses import replace
from functools import partial

from odradek.api.creation import TOPICS_AT_ONCE
from odradek.api.parts import cut_by
from odradek.api.request import Request
from odradek.api.services import Services
from odradek.config.broker import BrokerConfig
from odradek.config.topic_definitions import MAX_PARTITIONS_PER_REQUEST
from odradek.controller.topics import count_partitions, create_topics
from odradek.metadata.image import metric_name
from odradek.wire.codec import Steps
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse


async def handle(services: Services, request: Request, message: CreateTopicsRequest) -> CreateTopicsResponse:
    partition_count, parts = await services.turns.complete(_parts(message, services.config))
    answer = CreateTopicsResponse()
    pace = services.turns.pace()
    for part in parts:
        await pace.step()
        decision = partial(
            create_topics,
            request=replace(message, topics=part),
            config=services.config,
            rng=services.rng,
            partition_count=partition_count,
        )
        answer.topics += (await services.decide(decision)).topics
    return answer


def _parts(
    message: CreateTopicsRequest, config: BrokerConfig
) -> Steps[tuple[int, list[list[CreatableTopic]]]]:
    """How many partitions are asked for, and the topics, a few at a time: those that may be in each other's way
    together, unless all are refused anyway."""
    partition_count = 0
    for topic in message.topics:
        partition_count += count_partitions(topic, config)
        yield
    if partition_count > MAX_PARTITIONS_PER_REQUEST:
        return partition_count, (yield from cut_by(message.topics, _name, TOPICS_AT_ONCE))
    by_metric = cut_by(message.topics, lambda topic: metric_name(topic.name), TOPICS_AT_ONCE, _name)
    return partition_count, (yield from by_metric)


def _name(topic: CreatableTopic) -> str:
    return topic.name
