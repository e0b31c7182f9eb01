"""Topics that are created on first use: auto-creation and internal topics."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from odradek.config.broker import BrokerConfig
from odradek.controller.placement import factor_of_cluster
from odradek.errors import ErrorCode, KafkaError
from odradek.model import INTERNAL_TOPICS, Caller
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

USE_DEFAULT = -1
SEEN_WITHIN_SECONDS = 1.0
TOPICS_AT_ONCE = 50  # in one turn of the event loop


async def create_missing_topics(
    services: Services, request: Request, names: list[str]
) -> dict[str, ErrorCode]:
    """Create the topics that a client asked for. Returns the error of each that could not be created, except storage
    errors: those are logged, and to the client the topic does not exist yet, so it retries."""
    refused: dict[str, KafkaError] = {}
    pace = services.node.turns.pace()
    wanted = [name for name in dict.fromkeys(names) if name not in INTERNAL_TOPICS]
    for at in range(0, len(wanted), TOPICS_AT_ONCE):
        topics = [CreatableTopic(name, USE_DEFAULT, USE_DEFAULT) for name in wanted[at : at + TOPICS_AT_ONCE]]
        await pace.step()
        refused |= await _create(services, topics, request.caller)
        await _see(services, [topic.name for topic in topics if topic.name not in refused])
    return {
        name: error.code for name, error in refused.items() if error.code is not ErrorCode.KAFKA_STORAGE_ERROR
    }


class InternalTopic(NamedTuple):
    name: str
    partitions: int
    replication_factor: int | None  # None: it is not set, and follows the cluster
    configs: Mapping[str, str]


def factor_set(config: BrokerConfig, key: str) -> int | None:
    """The replication factor of an internal topic, if the settings have one."""
    factor: int = config[key]
    return factor if key in config.static else None


async def create_internal_topic(services: Services, topic: InternalTopic) -> None:
    """A replication factor that is set is kept: with fewer brokers the topic is refused, as in Kafka, and not made with
    fewer replicas for good. Brokers that are down count: they get their replicas, and copy them when they are back.
    Raises KafkaError if it cannot be created."""
    name, partitions, factor, configs = topic
    if factor is None:
        factor = factor_of_cluster(services.cluster.image)
    settings = [CreatableTopicConfig(key, value) for key, value in configs.items()]
    wanted = CreatableTopic(name, partitions, factor, configs=settings)
    refused = await _create(services, [wanted], services.node.caller)
    if name in refused:
        raise refused[name]
    await _see(services, [name])


async def _see(services: Services, names: list[str]) -> None:
    """Wait briefly until topics that another node created are in this node's image."""
    with suppress(TimeoutError):
        async with asyncio.timeout(SEEN_WITHIN_SECONDS):
            while not all(name in services.cluster.image.topics for name in names):
                await services.cluster.quorum.changed()


async def _create(services: Services, topics: list[CreatableTopic], caller: Caller) -> dict[str, KafkaError]:
    request = CreateTopicsRequest(topics=topics)
    response = await services.ask(request, request.MAX_VERSION, caller)
    return {
        topic.name: KafkaError(ErrorCode(topic.error_code), topic.error_message or "")
        for topic in response.topics
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    }
