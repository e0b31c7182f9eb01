"""Creating topics: because a client says so, because it asked for one (auto-creation), because we need it."""

from collections.abc import Mapping

from odradek.api.services import Services
from odradek.controller.topics import create_topics
from odradek.errors import ErrorCode, KafkaError
from odradek.model import INTERNAL_TOPICS
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

USE_DEFAULT = -1


async def create_missing_topics(services: Services, names: list[str]) -> dict[str, ErrorCode]:
    """Create what clients asked for; answers why a topic could not be created. That our disk is full is for the log:
    to a client the topic is not there yet, and it asks again."""
    wanted = [CreatableTopic(name, USE_DEFAULT, USE_DEFAULT) for name in names if name not in INTERNAL_TOPICS]
    refused = await _create(services, wanted)
    return {
        name: error.code for name, error in refused.items() if error.code is not ErrorCode.KAFKA_STORAGE_ERROR
    }


async def create_internal_topic(
    services: Services, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
) -> None:
    """Fewer brokers than the replication factor asks for is no reason to have no topic. Raises what is one."""
    available = len(list(services.image.active_brokers()))
    settings = [CreatableTopicConfig(key, value) for key, value in configs.items()]
    factor = min(replication_factor, available)
    wanted = CreatableTopic(name, partitions, factor, configs=settings)
    refused = await _create(services, [wanted])
    if name in refused:
        raise refused[name]


async def create(services: Services, message: CreateTopicsRequest) -> CreateTopicsResponse:
    answer = await services.decide(
        lambda image: create_topics(image, message, services.config, services.rng),
        lambda answer: answer.topics,
    )
    answer.topics = [_without_topic(result) if result.error_code else result for result in answer.topics]
    return answer


def _without_topic(result: CreatableTopicResult) -> CreatableTopicResult:
    """A topic that could not be written has no id and no settings, though it was given some."""
    return CreatableTopicResult(
        name=result.name, error_code=result.error_code, error_message=result.error_message
    )


async def _create(services: Services, topics: list[CreatableTopic]) -> dict[str, KafkaError]:
    answer = await create(services, CreateTopicsRequest(topics=topics))
    return {
        topic.name: KafkaError(ErrorCode(topic.error_code), topic.error_message or "")
        for topic in answer.topics
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    }
