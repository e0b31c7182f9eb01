"""Topics: described with offsets, sizes and settings; created, given more partitions, deleted; and their oldest records
deleted."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.admin.access import REQUEST_TIMEOUT_S, Access, Address
from odradek.admin.failures import NoContact, Refused
from odradek.admin.metadata import (
    Metadata,
    address_of,
    broker_addresses,
    metadata,
    metadata_of,
)
from odradek.admin.offsets import end_offsets, start_offsets
from odradek.admin.places import Place, by_topic, is_internal
from odradek.admin.requests import ask, ask_any
from odradek.admin.resources import RESOURCE_CODES, Kind
from odradek.admin.settings import describe_configs
from odradek.config.definition import ConfigSource
from odradek.errors import ErrorCode
from odradek.model import id_to_text
from odradek.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from odradek.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from odradek.wire.messages.describe_topic_partitions import (
    CursorInRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

BROKER_DEFAULT = -1
UP_TO_HIGH_WATERMARK = -1
TIMEOUT_MS = int(REQUEST_TIMEOUT_S * 1000)
TOPICS_AT_ONCE = 500

Outcome = Refused | None  # None: done


@dataclass(frozen=True)
class TopicSummary:
    """The fields are those of the JSON output of `odradek topic list`."""

    topic: str
    internal: bool
    partition_count: int
    replication_factor: int
    size_bytes: int | None  # None where brokers do not say


@dataclass(frozen=True)
class PartitionView:
    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None


@dataclass(frozen=True)
class TopicView:
    """The fields are those of the JSON output of `odradek topic describe`."""

    topic: str
    topic_id: str
    internal: bool
    partition_count: int
    replication_factor: int
    size_bytes: int | None
    configs: dict[str, str]
    partitions: list[PartitionView]


class Eligible(NamedTuple):
    replicas: list[int]
    last_known: list[int]


@dataclass(frozen=True)
class NewTopic:
    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] = field(
        default_factory=dict
    )  # replicas, instead of the two numbers


# Looking


def summarize(cluster: Access, names: Sequence[str]) -> list[TopicSummary]:
    topics = metadata(cluster).topics
    names = [name for name in names if name in topics]
    sizes = log_sizes(cluster, {name: sorted(topics[name].partitions) for name in names}) if names else {}
    return [
        TopicSummary(
            topic=name,
            internal=is_internal(name),
            partition_count=len(topics[name].partitions),
            replication_factor=max(
                (len(one.replicas) for one in topics[name].partitions.values()), default=0
            ),
            size_bytes=_total(sizes.get(Place(name, number)) for number in topics[name].partitions),
        )
        for name in names
    ]


def log_sizes(cluster: Access, partitions: Mapping[str, Sequence[int]]) -> dict[Place, int]:
    """Read the bytes on disk of each partition, at the broker that has most of it; nothing where brokers do not say."""
    topics = [DescribableLogDirTopic(topic, list(numbers)) for topic, numbers in partitions.items()]
    sizes: dict[Place, int] = {}
    for address in broker_addresses(cluster).values():
        try:
            response = ask(cluster, address, DescribeLogDirsRequest(topics), DescribeLogDirsResponse)
        except NoContact:
            continue
        for directory in response.results:
            for topic in directory.topics:
                for found in topic.partitions:
                    place = Place(topic.name, found.partition_index)
                    sizes[place] = max(found.partition_size, sizes.get(place, 0))
    return sizes


def _total(sizes: Iterable[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def view_topics(cluster: Access, names: Sequence[str]) -> list[TopicView]:
    """View each topic once; the first that does not exist is the failure of the whole."""
    names = list(dict.fromkeys(names))
    if not names:
        return []
    found = metadata_of(cluster, names)
    configs = own_settings(cluster, next(iter(found.brokers.values())).address, names)
    led = [place for place, leader in found.leaders().items() if leader is not None]
    starts, ends = start_offsets(cluster, led), end_offsets(cluster, led)
    sizes = log_sizes(cluster, {name: list(topic.partitions) for name, topic in found.topics.items()})
    return [_view(found, name, configs.get(name, {}), starts, ends, sizes) for name in names]


def own_settings(cluster: Access, address: Address, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """The settings of topics that are not Kafka's defaults."""
    found: dict[str, dict[str, str]] = {}
    for at in range(0, len(names), TOPICS_AT_ONCE):
        some = names[at : at + TOPICS_AT_ONCE]
        for result in describe_configs(cluster, address, RESOURCE_CODES[Kind.TOPIC], some, []):
            found[result.resource_name] = {
                one.name: one.value or ""
                for one in sorted(result.configs, key=lambda one: one.name)
                if one.config_source != ConfigSource.DEFAULT_CONFIG
            }
    return found


def _view(
    found: Metadata,
    name: str,
    configs: dict[str, str],
    starts: Mapping[Place, int],
    ends: Mapping[Place, int],
    sizes: Mapping[Place, int],
) -> TopicView:
    topic = found.topics[name]
    partitions = [
        PartitionView(
            partition=one.id,
            leader=one.leader,
            replicas=one.replicas,
            isr=one.isr,
            start_offset=starts.get(Place(name, one.id)),
            end_offset=ends.get(Place(name, one.id)),
            size_bytes=sizes.get(Place(name, one.id)),
        )
        for one in topic.partitions.values()
    ]
    return TopicView(
        topic=name,
        topic_id=id_to_text(topic.id),
        internal=topic.is_internal,
        partition_count=len(partitions),
        replication_factor=len(partitions[0].replicas) if partitions else 0,
        size_bytes=_total(partition.size_bytes for partition in partitions),
        configs=configs,
        partitions=partitions,
    )


def eligible_leaders(cluster: Access, names: Sequence[str]) -> dict[Place, Eligible]:
    """List replicas that may lead although they are not in sync (KIP-966); none where brokers do not know of them."""
    found: dict[Place, Eligible] = {}
    cursor = None
    while True:
        request = DescribeTopicPartitionsRequest(
            [TopicRequest(name) for name in sorted(names)], cursor=cursor
        )
        try:
            response = ask_any(cluster, request, DescribeTopicPartitionsResponse)
        except NoContact:
            return found
        for topic in response.topics:
            for one in topic.partitions:
                place = Place(topic.name or "", one.partition_index)
                found[place] = Eligible(one.eligible_leader_replicas or [], one.last_known_elr or [])
        if response.next_cursor is None:
            return found
        cursor = CursorInRequest(response.next_cursor.topic_name, response.next_cursor.partition_index)


# Changing


def create_topics(cluster: Access, topics: Sequence[NewTopic]) -> dict[str, Outcome]:
    request = CreateTopicsRequest([_creatable(topic) for topic in topics], TIMEOUT_MS)
    response = ask_any(cluster, request, CreateTopicsResponse)
    return {one.name: _outcome(one.error_code, one.error_message, one.name) for one in response.topics}


def _creatable(topic: NewTopic) -> CreatableTopic:
    assigned = [
        CreatableReplicaAssignment(number, list(replicas)) for number, replicas in topic.assignment.items()
    ]
    configs = [CreatableTopicConfig(name, value) for name, value in topic.configs.items()]
    return CreatableTopic(topic.name, topic.partitions, topic.replication_factor, assigned, configs)


def delete_topics(cluster: Access, names: Sequence[str]) -> dict[str, Outcome]:
    request = DeleteTopicsRequest([DeleteTopicState(name) for name in names], list(names), TIMEOUT_MS)
    response = ask_any(cluster, request, DeleteTopicsResponse)
    return {
        one.name or "": _outcome(one.error_code, one.error_message, one.name) for one in response.responses
    }


def add_partitions(
    cluster: Access, name: str, count: int, assignment: Sequence[Sequence[int]] | None = None
) -> None:
    """Give a topic more partitions, `count` altogether; `assignment` has the replicas of the new ones. Raises
    Refused."""
    chosen = (
        None
        if assignment is None
        else [CreatePartitionsAssignment(list(replicas)) for replicas in assignment]
    )
    request = CreatePartitionsRequest([CreatePartitionsTopic(name, count, chosen)], TIMEOUT_MS)
    (result,) = ask_any(cluster, request, CreatePartitionsResponse).results
    if outcome := _outcome(result.error_code, result.error_message, name):
        raise outcome


def delete_records(cluster: Access, ends: Mapping[Place, int]) -> dict[Place, int | Refused]:
    """Delete the records before these offsets; where each partition starts now, or why it was refused."""
    found = metadata_of(cluster, by_topic(ends))
    leaders: dict[Address, list[Place]] = {}
    outcomes: dict[Place, int | Refused] = {}
    for place, leader in found.leaders().items():
        if place in ends:
            leaders.setdefault(address_of(found, leader, str(place)), []).append(place)
    for address, places in leaders.items():
        topics = [
            DeleteRecordsTopic(
                topic, [DeleteRecordsPartition(one, ends[Place(topic, one)]) for one in partitions]
            )
            for topic, partitions in by_topic(places).items()
        ]
        response = ask(cluster, address, DeleteRecordsRequest(topics, TIMEOUT_MS), DeleteRecordsResponse)
        for topic in response.topics:
            for one in topic.partitions:
                place = Place(topic.name, one.partition_index)
                outcomes[place] = _outcome(one.error_code, None, str(place)) or one.low_watermark
    return outcomes


def _outcome(code: int, message: str | None, subject: str | None) -> Refused | None:
    if not code:
        return None
    said = message[:1].lower() + message[1:] if message else None
    return Refused(ErrorCode(code), said, subject)
