"""The consumer protocol that classic groups carry inside JoinGroup and SyncGroup, as opaque bytes to the
broker.

Opaque until a group is shared with members of the new protocol: then the coordinator reads the
subscriptions and writes the assignments itself. A version newer than ours reads as ours: fields are only
ever added at the end.
"""

import struct
from collections.abc import Iterable

from odradek.coordinators.consumer.assignment import Partitions
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.metadata.image import MetadataImage
from odradek.wire.codec import read_message, write_message
from odradek.wire.messages.consumer_group_heartbeat import TopicPartitionsInRequest
from odradek.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from odradek.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.wire.messages.consumer_protocol_subscription import TopicPartition as OwnedPartition

_VERSION = struct.Struct(">h")


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    version = min(_version(metadata), ConsumerProtocolSubscription.MAX_VERSION)
    try:
        return read_message(ConsumerProtocolSubscription, version, metadata, _VERSION.size)[0]
    except ProtocolError:
        raise _malformed() from None


def read_assignment(assignment: bytes, image: MetadataImage) -> Partitions:
    """Topics that no longer exist are left out. A member that was never assigned anything has no bytes."""
    if not assignment:
        return {}
    version = min(_version(assignment), ConsumerProtocolAssignment.MAX_VERSION)
    try:
        found, _ = read_message(ConsumerProtocolAssignment, version, assignment, _VERSION.size)
    except ProtocolError:
        raise _malformed() from None
    named = named_by_id(found.assigned_partitions, image)
    return {topic.topic_id: frozenset(topic.partitions) for topic in named if topic.partitions}


def write_assignment(partitions: Partitions, image: MetadataImage, subscription: bytes) -> bytes:
    """In the version that the member's subscription was written in."""
    version = min(_version(subscription), ConsumerProtocolAssignment.MAX_VERSION)
    topics = [
        TopicPartition(image.topics_by_id[topic].name, sorted(numbers))
        for topic, numbers in partitions.items()
        if topic in image.topics_by_id
    ]
    out = bytearray(_VERSION.pack(version))
    write_message(ConsumerProtocolAssignment(topics), version, out)
    return bytes(out)


def named_by_id(
    topics: Iterable[OwnedPartition | TopicPartition], image: MetadataImage
) -> list[TopicPartitionsInRequest]:
    return [
        TopicPartitionsInRequest(image.topics[topic.topic].id, topic.partitions)
        for topic in topics
        if topic.topic in image.topics
    ]


def _version(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise _malformed()
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise _malformed()
    return version


def _malformed() -> KafkaError:
    return KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The embedded consumer protocol is malformed.")
