"""Metadata (3): brokers, topics and their leaders; the way from any one broker to all of them.

- Topics by name or (version 12 on) by id; null means all, an empty list none (in version 0: all).
- A topic that does not exist is created if the request and `auto.create.topics.enable` allow it, with
  `num.partitions` and `default.replication.factor`; the response then already shows its leaders.
- A broker whose disk is so full that it cannot keep the metadata does not know who leads by now, perhaps in its place:
  it closes the connection, so that the client asks another broker.
- Unlike Kafka's first response about such a topic, UNKNOWN_TOPIC_OR_PARTITION, because the response waits for the
  creation.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from odradek.apis.row import May, Need, Operation, Resource
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import NO_LEADER, MetadataImage, Topic
from odradek.model import INTERNAL_TOPICS, NO_TOPIC_ID, check_topic_name
from odradek.services.coordination.creation import create_missing_topics
from odradek.serving.authorized import cluster_operations, operations
from odradek.serving.authorizer import may_of
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.codec import Steps
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC_IDS_SINCE = 12


def access(message: MetadataRequest, version: int, may: May) -> tuple[Need, ...]:
    wants_all = message.topics is None or (version == 0 and not message.topics)
    return () if wants_all else (Need(Operation.DESCRIBE, Resource.TOPIC),)


def handle(services: Services, request: Request, message: MetadataRequest) -> Steps[MetadataResponse | None]:
    services.cluster.check_metadata()
    missing: list[str] = []
    for topic in message.topics or ():
        if request.version < TOPIC_IDS_SINCE and _is_by_id(topic):
            return _refuse(message)
        if topic.name and topic.topic_id == NO_TOPIC_ID and topic.name not in services.cluster.image.topics:
            missing.append(topic.name)
        yield
    may_create = message.allow_auto_topic_creation or request.version < 4
    if missing and may_create and services.node.config["auto.create.topics.enable"]:
        request.then(_create_and_describe(services, request, message, missing))
        return None
    return (yield from describe(services, request, message, {}))


def _is_by_id(topic: MetadataRequestTopic) -> bool:
    return topic.name is None or topic.topic_id != NO_TOPIC_ID


def _refuse(message: MetadataRequest) -> MetadataResponse:
    """Versions 10 and 11 have a field for topic ids, but must not use it."""
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(ErrorCode.INVALID_REQUEST, name=topic.name or "")
            for topic in message.topics or ()
        ]
    )


async def _create_and_describe(
    services: Services, request: Request, message: MetadataRequest, missing: list[str]
) -> MetadataResponse:
    refused = await create_missing_topics(services, request, missing)
    return await services.node.turns.complete(describe(services, request, message, refused))


def describe(
    services: Services, request: Request, message: MetadataRequest, refused: dict[str, ErrorCode]
) -> Steps[MetadataResponse]:
    image = services.cluster.image
    response = MetadataResponse(
        brokers=brokers(image, request.caller.listener),
        cluster_id=image.cluster_id,
        controller_id=services.cluster.next_controller_id(),
    )
    if message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(services.authorizer, request)
    for topic in _described(services, request, message, refused):
        yield
        if topic is None:
            continue
        if message.include_topic_authorized_operations:
            bits = operations(services.authorizer, request, Resource.TOPIC, topic.name or "")
            topic = replace(topic, topic_authorized_operations=bits)
        response.topics.append(topic)
    return response


def _described(
    services: Services, request: Request, message: MetadataRequest, refused: dict[str, ErrorCode]
) -> Iterator[MetadataResponseTopic | None]:
    """None for a topic that the caller may not see. (There may be many, and each costs a decision.)"""
    image = services.cluster.image
    online = online_brokers(image, request.caller.listener)
    if message.topics is not None and (request.version > 0 or message.topics):
        return (_find_topic(image, topic, refused, online) for topic in message.topics)
    if services.authorizer.allows_all:
        return (describe_topic(topic, online) for topic in image.topics.values())
    may = may_of(services.authorizer, request)
    return (
        describe_topic(topic, online) if may(Operation.DESCRIBE, Resource.TOPIC, topic.name) else None
        for topic in image.topics.values()
    )


def brokers(image: MetadataImage, listener: str) -> list[MetadataResponseBroker]:
    """Return the brokers that can be reached on the listener that the client used."""
    found = ((broker, broker.endpoint(listener)) for broker in image.brokers.values() if not broker.is_fenced)
    return [
        MetadataResponseBroker(broker.id, endpoint.host, endpoint.port, broker.rack)
        for broker, endpoint in found
        if endpoint
    ]


def _find_topic(
    image: MetadataImage,
    wanted: MetadataRequestTopic,
    refused: dict[str, ErrorCode],
    online: frozenset[int],
) -> MetadataResponseTopic:
    if wanted.topic_id != NO_TOPIC_ID:
        topic = image.topics_by_id.get(wanted.topic_id)
        if topic is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id)
        return describe_topic(topic, online)
    name = wanted.name or ""
    topic = image.topics.get(name)
    if topic is not None:
        return describe_topic(topic, online)
    return MetadataResponseTopic(
        refused.get(name) or _why_unknown(name), name=name, is_internal=name in INTERNAL_TOPICS
    )


def _why_unknown(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def online_brokers(image: MetadataImage, listener: str) -> frozenset[int]:
    """Return the brokers that can be reached on this listener; to the client any other replica is offline."""
    return frozenset(
        broker.id for broker in image.brokers.values() if not broker.is_fenced and broker.endpoint(listener)
    )


def describe_topic(topic: Topic, online: frozenset[int]) -> MetadataResponseTopic:
    return _describe_topic(_Same(topic), online)


class _Same:
    """A topic of an image, compared by identity: an image that did not change a topic shares it."""

    __slots__ = ("topic",)

    def __init__(self, topic: Topic) -> None:
        self.topic = topic

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.topic is self.topic

    def __hash__(self) -> int:
        return hash(self.topic.id)


@lru_cache(maxsize=16_384)
def _describe_topic(same: _Same, online: frozenset[int]) -> MetadataResponseTopic:
    topic = same.topic
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            MetadataResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE
                if partition.leader == NO_LEADER
                else ErrorCode.NONE,
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=[replica for replica in partition.replicas if replica not in online],
            )
            for index, partition in sorted(topic.partitions.items())
        ],
    )
