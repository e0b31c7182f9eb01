"""Creates and deletes topics, and adds partitions: the records to write to the metadata log, and the response.

Each function takes an image and a request and returns (records, response); it changes nothing. The caller appends the
records, and responds once they are committed. A topic that is refused does not affect the others.

The caller checks authorization: it removes from the request what a client may not touch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random
from uuid import UUID

from odradek.config.broker import BrokerConfig
from odradek.config.describe import describe_topic
from odradek.config.topic import check_topic_overrides
from odradek.config.topic_definitions import MAX_PARTITIONS_PER_REQUEST
from odradek.controller.mutations import Spend, unlimited
from odradek.controller.placement import (
    check_assignment,
    default_factor,
    new_partition,
    place_replicas,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import MetadataImage, ResourceType, Topic, metric_name
from odradek.metadata.records import ConfigRecord, MetadataRecord, RemoveTopicRecord, TopicRecord
from odradek.model import METADATA_TOPIC, METADATA_TOPIC_ID, NO_TOPIC_ID, check_topic_name, id_to_text
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

Records = list[MetadataRecord]

# Ids with a special meaning: no topic, and the metadata log.
RESERVED_TOPIC_IDS = frozenset({NO_TOPIC_ID, METADATA_TOPIC_ID})


# Creating


def create_topics(
    image: MetadataImage,
    request: CreateTopicsRequest,
    config: BrokerConfig,
    rng: Random,
    partition_count: int | None = None,
    spend: Spend = unlimited,
) -> tuple[Records, CreateTopicsResponse]:
    """Create topics; with `validate_only` the response is the same, but there are no records.

    `partition_count` is that of the whole request, if this is a part of one. `spend` asks a quota."""
    records: Records = []
    response = CreateTopicsResponse()
    counts = Counter(topic.name for topic in request.topics)
    if partition_count is None:
        partition_count = sum(count_partitions(topic, config) for topic in request.topics)
    taken: dict[str, str] = {}  # metric names of the topics this request creates
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if counts[topic.name] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "This topic name is in the request more than once."
                )
            _check_size(partition_count)
            _check_new_name(image, topic.name, taken)
            topic_records, result = _create_topic(image, topic, config, rng)
            spend(result.num_partitions)
            taken[metric_name(topic.name)] = topic.name
            records += topic_records
        except KafkaError as error:
            result = CreatableTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message or None
            )
        response.topics.append(result)
    return ([] if request.validate_only else records), response


def count_partitions(topic: CreatableTopic, config: BrokerConfig) -> int:
    if topic.assignments:
        return len(topic.assignments)
    count: int = config["num.partitions"] if topic.num_partitions == -1 else topic.num_partitions
    return count


def _check_size(partition_count: int) -> None:
    if partition_count > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"One request may not create more than {MAX_PARTITIONS_PER_REQUEST} partitions.",
        )


def _check_new_name(image: MetadataImage, name: str, taken: Mapping[str, str]) -> None:
    if name == METADATA_TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{METADATA_TOPIC} is the cluster's own and cannot be created."
        )
    check_topic_name(name)
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = image.metric_names.get(metric_name(name)) or taken.get(metric_name(name))
    if other:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' has the same name in metrics as topic '{other}'.",
        )


def _create_topic(
    image: MetadataImage,
    topic: CreatableTopic,
    config: BrokerConfig,
    rng: Random,
) -> tuple[Records, CreatableTopicResult]:
    overrides = {item.name: item.value for item in topic.configs}
    check_topic_overrides(overrides, config)
    settings = {name: value for name, value in overrides.items() if value is not None}
    replicas = _assigned(image, topic) if topic.assignments else _placed(image, topic, config, rng)
    topic_id = new_topic_id(rng)
    records: Records = [TopicRecord(topic.name, topic_id)]
    for name, value in settings.items():
        records.append(ConfigRecord(ResourceType.TOPIC, topic.name, name, value))
    for index, brokers in enumerate(replicas):
        records.append(new_partition(image, topic_id, index, brokers))
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=_described(settings, config),
    )
    return records, result


def _described(settings: Mapping[str, str], config: BrokerConfig) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(entry.name, entry.value, entry.read_only, entry.source, entry.is_sensitive)
        for entry in describe_topic(settings, config)
    ]


def _assigned(image: MetadataImage, topic: CreatableTopic) -> list[list[int]]:
    """The replicas that the request assigns."""
    for field, value in (
        ("replication factor", topic.replication_factor),
        ("number of partitions", topic.num_partitions),
    ):
        if value != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"With replicas assigned by hand the {field} must be -1.",
            )
    found: dict[int, list[int]] = {}
    factor: int | None = None
    for assignment in topic.assignments:
        _check_once(assignment, found)
        check_assignment(image, assignment.broker_ids, factor)
        factor = len(assignment.broker_ids)
        found[assignment.partition_index] = assignment.broker_ids
    if set(found) != set(range(len(found))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The assigned partitions must be numbered from 0 without a gap.",
        )
    return [found[index] for index in range(len(found))]


def _check_once(assignment: CreatableReplicaAssignment, found: Mapping[int, list[int]]) -> None:
    if assignment.partition_index in found:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Partition {assignment.partition_index} is assigned more than once.",
        )


def _placed(
    image: MetadataImage, topic: CreatableTopic, config: BrokerConfig, rng: Random
) -> list[list[int]]:
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "The replication factor must be at least 1, or -1 for the default.",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "The number of partitions must be at least 1, or -1 for the default.",
        )
    factor = topic.replication_factor
    if factor == -1:
        factor = default_factor(image, config)
    return place_replicas(image.brokers.values(), count_partitions(topic, config), factor, rng)


def new_topic_id(rng: Random) -> UUID:
    """A random id whose text does not begin with '-', which a command line would take for an option."""
    while True:
        topic_id = UUID(int=rng.getrandbits(128), version=4)
        if topic_id not in RESERVED_TOPIC_IDS and not id_to_text(topic_id).startswith("-"):
            return topic_id


# Deleting


def delete_topics(
    image: MetadataImage,
    request: DeleteTopicsRequest,
    config: BrokerConfig,
    version: int,
    spend: Spend = unlimited,
) -> tuple[Records, DeleteTopicsResponse]:
    """Delete topics by name or, since version 6, by id."""
    states = [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]
    if not config["delete.topic.enable"]:
        return [], _deletion_disabled(states, version)
    counts = Counter((state.name, state.topic_id) for state in states)
    records: Records = []
    response = DeleteTopicsResponse()
    deleted: set[UUID] = set()
    for name, topic_id in counts:
        try:
            topic = _topic_to_delete(image, name, topic_id, counts[name, topic_id], deleted)
            spend(len(topic.partitions))
            deleted.add(topic.id)
            records.append(RemoveTopicRecord(topic.id))
            result = DeletableTopicResult(topic.name, topic.id)
        except KafkaError as error:
            result = DeletableTopicResult(name, topic_id, error.code, error.message or None)
        response.responses.append(result)
    return records, response


def _deletion_disabled(states: Iterable[DeleteTopicState], version: int) -> DeleteTopicsResponse:
    code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
    results = [
        DeletableTopicResult(state.name, state.topic_id, code, "delete.topic.enable is false.")
        for state in states
    ]
    return DeleteTopicsResponse(responses=results)


def _topic_to_delete(
    image: MetadataImage, name: str | None, topic_id: UUID, count: int, deleted: set[UUID]
) -> Topic:
    if name is None and topic_id == NO_TOPIC_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic to delete needs a name or an id.")
    if name is not None and topic_id != NO_TOPIC_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic to delete needs a name or an id, not both.")
    if count > 1:
        what = "id" if name is None else "name"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"This topic {what} is in the request more than once.")
    topic = image.topics_by_id.get(topic_id) if name is None else image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.id in deleted:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "This topic is in the request by name and by id.")
    return topic


# More partitions


def create_partitions(
    image: MetadataImage,
    request: CreatePartitionsRequest,
    rng: Random,
    spend: Spend = unlimited,
) -> tuple[Records, CreatePartitionsResponse]:
    records: Records = []
    response = CreatePartitionsResponse()
    counts = Counter(topic.name for topic in request.topics)
    for topic in {topic.name: topic for topic in request.topics}.values():
        result = CreatePartitionsTopicResult(topic.name)
        try:
            if counts[topic.name] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "This topic name is in the request more than once."
                )
            more = _more_partitions(image, topic, rng)
            spend(len(more))
            records += more
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message or None
        response.results.append(result)
    return ([] if request.validate_only else records), response


def _more_partitions(image: MetadataImage, wanted: CreatePartitionsTopic, rng: Random) -> Records:
    topic = image.topics.get(wanted.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    existing = len(topic.partitions)
    _check_count(wanted, existing)
    _check_size(wanted.count - existing)
    factor = len(topic.partitions[0].replicas)
    additional = wanted.count - existing
    if wanted.assignments is None:
        replicas = place_replicas(image.brokers.values(), additional, factor, rng)
    else:
        replicas = [assignment.broker_ids for assignment in wanted.assignments]
        if len(replicas) != additional:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{additional} partition(s) are to be added, but {len(replicas)} are assigned.",
            )
        for brokers in replicas:
            check_assignment(image, brokers, factor)
    return [
        new_partition(image, topic.id, existing + position, brokers)
        for position, brokers in enumerate(replicas)
    ]


def _check_count(wanted: CreatePartitionsTopic, existing: int) -> None:
    if wanted.count == existing:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"The topic has {existing} partition(s) already.")
    if wanted.count < existing:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic has {existing} partition(s), more than {wanted.count}; partitions cannot be removed.",
        )
