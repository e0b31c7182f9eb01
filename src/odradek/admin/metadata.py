"""The brokers and topics of a cluster, as Metadata describes them. Looking never creates a topic."""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from odradek.admin.access import Access, Address
from odradek.admin.failures import Refused
from odradek.admin.places import Place
from odradek.admin.requests import ask_any
from odradek.errors import ErrorCode
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

NO_LEADER = -1


@dataclass(frozen=True)
class Broker:
    id: int
    address: Address
    rack: str | None


@dataclass(frozen=True)
class Partition:
    id: int
    leader: int | None
    leader_epoch: int
    replicas: list[int]
    isr: list[int]


@dataclass(frozen=True)
class Topic:
    name: str
    id: UUID
    is_internal: bool
    partitions: dict[int, Partition]


@dataclass(frozen=True)
class Metadata:
    cluster_id: str | None
    controller: int
    brokers: dict[int, Broker]
    topics: dict[str, Topic]

    def leaders(self) -> dict[Place, int | None]:
        return {
            Place(topic.name, one.id): one.leader
            for topic in self.topics.values()
            for one in topic.partitions.values()
        }


def metadata(cluster: Access) -> Metadata:
    """Ask for all metadata; topics that are just being deleted are left out."""
    response = ask_any(
        cluster, MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse
    )
    return _metadata(response, [topic for topic in response.topics if not topic.error_code])


def metadata_of(cluster: Access, names: Iterable[str]) -> Metadata:
    """The brokers and these topics. Raises Refused, which names the topic, for one that does not exist."""
    found, missing = look_up(cluster, names)
    for error in missing.values():
        raise error
    return found


def look_up(cluster: Access, names: Iterable[str]) -> tuple[Metadata, dict[str, Refused]]:
    """The brokers and those of the topics that exist; for the others, why they cannot be described."""
    wanted = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    response = ask_any(cluster, request, MetadataResponse)
    there = [
        topic
        for topic in response.topics
        if not topic.error_code or (topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE and topic.partitions)
    ]
    missing = {
        topic.name or "": Refused(ErrorCode(topic.error_code), None, topic.name)
        for topic in response.topics
        if topic not in there
    }
    return _metadata(response, there), missing


def broker_addresses(cluster: Access) -> dict[int, Address]:
    response = ask_any(cluster, MetadataRequest(topics=[], allow_auto_topic_creation=False), MetadataResponse)
    return {one.node_id: Address(one.host, one.port) for one in response.brokers}


def existing_partitions(cluster: Access, topic: str) -> list[int]:
    return sorted(metadata_of(cluster, [topic]).topics[topic].partitions)


def address_of(found: Metadata, broker: int | None, subject: str) -> Address:
    """Raises Refused if there is no such broker: the partition has no leader, say."""
    if broker is None or broker not in found.brokers:
        raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, "it has no leader", subject)
    return found.brokers[broker].address


def _metadata(response: MetadataResponse, topics: list[MetadataResponseTopic]) -> Metadata:
    return Metadata(
        response.cluster_id,
        response.controller_id,
        {
            one.node_id: Broker(one.node_id, Address(one.host, one.port), one.rack or None)
            for one in response.brokers
        },
        {topic.name or "": _topic(topic) for topic in topics},
    )


def _topic(topic: MetadataResponseTopic) -> Topic:
    partitions = {
        one.partition_index: Partition(
            one.partition_index,
            None if one.leader_id == NO_LEADER else one.leader_id,
            one.leader_epoch,
            list(one.replica_nodes),
            list(one.isr_nodes),
        )
        for one in sorted(topic.partitions, key=lambda one: one.partition_index)
    }
    return Topic(topic.name or "", topic.topic_id, topic.is_internal, partitions)
