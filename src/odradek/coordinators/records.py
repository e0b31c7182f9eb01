"""The records in `__consumer_offsets`: Kafka's own keys and values.

A key is a two-byte type and its fields; a value is a two-byte version and its fields; no value is a
tombstone. `SCHEMAS` pairs every type with its dataclasses; `encode` writes the versions that Apache Kafka
4.3 writes. A type we do not know (a newer broker's, a share or streams group's) decodes to None: the loader
skips it, as Kafka does, and compaction keeps it.
"""

import struct
from dataclasses import field
from typing import Annotated, Any, ClassVar
from uuid import UUID

from odradek.errors import ProtocolError
from odradek.model import NO_TOPIC_ID
from odradek.wire.codec import FOREVER, Buffer, Wire, read_message, wire_struct, write_message

_INT16 = struct.Struct(">h")


# --- committed offsets ---


@wire_struct
class OffsetCommitKey:
    FLEXIBLE_SINCE: ClassVar[int] = FOREVER
    TYPE: ClassVar[int] = 1

    group: Annotated[str, Wire("string")]
    topic: Annotated[str, Wire("string")]
    partition: Annotated[int, Wire("int32")]


@wire_struct
class OffsetCommitValue:
    FLEXIBLE_SINCE: ClassVar[int] = 4

    offset: Annotated[int, Wire("int64")] = 0
    leader_epoch: Annotated[int, Wire("int32", since=3)] = -1
    metadata: Annotated[str, Wire("string")] = ""
    commit_timestamp: Annotated[int, Wire("int64")] = 0
    expire_timestamp: Annotated[int, Wire("int64", since=1, until=1)] = -1
    topic_id: Annotated[UUID, Wire("uuid", since=4, tag=0, tag_since=4)] = NO_TOPIC_ID


# --- classic groups ---


@wire_struct
class GroupMetadataKey:
    FLEXIBLE_SINCE: ClassVar[int] = FOREVER
    TYPE: ClassVar[int] = 2

    group: Annotated[str, Wire("string")]


@wire_struct
class MemberMetadata:
    member_id: Annotated[str, Wire("string")] = ""
    group_instance_id: Annotated[str | None, Wire("string", since=3, nullable_since=3)] = None
    client_id: Annotated[str, Wire("string")] = ""
    client_host: Annotated[str, Wire("string")] = ""
    rebalance_timeout: Annotated[int, Wire("int32", since=1)] = -1
    session_timeout: Annotated[int, Wire("int32")] = 0
    subscription: Annotated[bytes, Wire("bytes")] = b""
    assignment: Annotated[bytes, Wire("bytes")] = b""


@wire_struct
class GroupMetadataValue:
    FLEXIBLE_SINCE: ClassVar[int] = 4

    protocol_type: Annotated[str, Wire("string")] = ""
    generation: Annotated[int, Wire("int32")] = 0
    protocol: Annotated[str | None, Wire("string", nullable_since=0)] = None
    leader: Annotated[str | None, Wire("string", nullable_since=0)] = None
    current_state_timestamp: Annotated[int, Wire("int64", since=2)] = -1
    members: Annotated[list[MemberMetadata], Wire("struct[]")] = field(default_factory=list)


# --- consumer groups (KIP-848) ---


@wire_struct
class ConsumerGroupMetadataKey:
    FLEXIBLE_SINCE: ClassVar[int] = FOREVER
    TYPE: ClassVar[int] = 3

    group_id: Annotated[str, Wire("string")]


@wire_struct
class ConsumerGroupMetadataValue:
    FLEXIBLE_SINCE: ClassVar[int] = 0

    epoch: Annotated[int, Wire("int32")] = 0
    metadata_hash: Annotated[int, Wire("int64", tag=0)] = 0


@wire_struct
class ConsumerGroupPartitionMetadataKey:
    """Only read: since Kafka 4.1 `metadata_hash` above replaces it."""

    FLEXIBLE_SINCE: ClassVar[int] = FOREVER
    TYPE: ClassVar[int] = 4

    group_id: Annotated[str, Wire("string")]


@wire_struct
class PartitionRacks:
    partition: Annotated[int, Wire("int32")] = 0
    racks: Annotated[list[str], Wire("string[]")] = field(default_factory=list)


@wire_struct
class SubscribedTopic:
    topic_id: Annotated[UUID, Wire("uuid")] = NO_TOPIC_ID
    topic_name: Annotated[str, Wire("string")] = ""
    num_partitions: Annotated[int, Wire("int32")] = 0
    partition_metadata: Annotated[list[PartitionRacks], Wire("struct[]")] = field(default_factory=list)


@wire_struct
class ConsumerGroupPartitionMetadataValue:
    FLEXIBLE_SINCE: ClassVar[int] = 0

    topics: Annotated[list[SubscribedTopic], Wire("struct[]")] = field(default_factory=list)


@wire_struct
class ConsumerGroupMemberMetadataKey:
    FLEXIBLE_SINCE: ClassVar[int] = FOREVER
    TYPE: ClassVar[int] = 5

    group_id: Annotated[str, Wire("string")]
    member_id: Annotated[str, Wire("string")]


@wire_struct
class ClassicProtocol:
    name: Annotated[str, Wire("string")] = ""
    metadata: Annotated[bytes, Wire("bytes")] = b""


@wire_struct
class ClassicMemberMetadata:
    session_timeout_ms: Annotated[int, Wire("int32")] = 0
    supported_protocols: Annotated[list[ClassicProtocol], Wire("struct[]")] = field(default_factory=list)


@wire_struct
class ConsumerGroupMemberMetadataValue:
    FLEXIBLE_SINCE: ClassVar[int] = 0

    instance_id: Annotated[str | None, Wire("string", nullable_since=0)] = None
    rack_id: Annotated[str | None, Wire("string", nullable_since=0)] = None
    client_id: Annotated[str, Wire("string")] = ""
    client_host: Annotated[str, Wire("string")] = ""
    subscribed_topic_names: Annotated[list[str], Wire("string[]")] = field(default_factory=list)
    subscribed_topic_regex: Annotated[str | None, Wire("string", nullable_since=0)] = None
    rebalance_timeout_ms: Annotated[int, Wire("int32")] = -1
    server_assignor: Annotated[str | None, Wire("string", nullable_since=0)] = None
    classic_member_metadata: Annotated[
        ClassicMemberMetadata | None, Wire("struct", nullable_since=0, tag=0)
    ] = None


@wire_struct
class ConsumerGroupTargetAssignmentMetadataKey:
    FLEXIBLE_SINCE: ClassVar[int] = FOREVER
    TYPE: ClassVar[int] = 6

    group_id: Annotated[str, Wire("string")]


@wire_struct
class ConsumerGroupTargetAssignmentMetadataValue:
    FLEXIBLE_SINCE: ClassVar[int] = 0

    assignment_epoch: Annotated[int, Wire("int32")] = 0
    assignment_timestamp: Annotated[int, Wire("int64", tag=0)] = 0


@wire_struct
class ConsumerGroupTargetAssignmentMemberKey:
    FLEXIBLE_SINCE: ClassVar[int] = FOREVER
    TYPE: ClassVar[int] = 7

    group_id: Annotated[str, Wire("string")]
    member_id: Annotated[str, Wire("string")]


@wire_struct
class TargetPartitions:
    topic_id: Annotated[UUID, Wire("uuid")] = NO_TOPIC_ID
    partitions: Annotated[list[int], Wire("int32[]")] = field(default_factory=list)


@wire_struct
class ConsumerGroupTargetAssignmentMemberValue:
    FLEXIBLE_SINCE: ClassVar[int] = 0

    topic_partitions: Annotated[list[TargetPartitions], Wire("struct[]")] = field(default_factory=list)


@wire_struct
class ConsumerGroupCurrentMemberAssignmentKey:
    FLEXIBLE_SINCE: ClassVar[int] = FOREVER
    TYPE: ClassVar[int] = 8

    group_id: Annotated[str, Wire("string")]
    member_id: Annotated[str, Wire("string")]


@wire_struct
class AssignedPartitions:
    """`assignment_epochs`, where known, has the length of `partitions`."""

    topic_id: Annotated[UUID, Wire("uuid")] = NO_TOPIC_ID
    partitions: Annotated[list[int], Wire("int32[]")] = field(default_factory=list)
    assignment_epochs: Annotated[list[int] | None, Wire("int32[]", nullable_since=0, tag=0)] = None


@wire_struct
class ConsumerGroupCurrentMemberAssignmentValue:
    FLEXIBLE_SINCE: ClassVar[int] = 0

    member_epoch: Annotated[int, Wire("int32")] = 0
    previous_member_epoch: Annotated[int, Wire("int32")] = 0
    state: Annotated[int, Wire("int8")] = 0
    assigned_partitions: Annotated[list[AssignedPartitions], Wire("struct[]")] = field(default_factory=list)
    partitions_pending_revocation: Annotated[list[AssignedPartitions], Wire("struct[]")] = field(
        default_factory=list
    )


@wire_struct
class ConsumerGroupRegularExpressionKey:
    FLEXIBLE_SINCE: ClassVar[int] = FOREVER
    TYPE: ClassVar[int] = 16

    group_id: Annotated[str, Wire("string")]
    regular_expression: Annotated[str, Wire("string")]


@wire_struct
class ConsumerGroupRegularExpressionValue:
    FLEXIBLE_SINCE: ClassVar[int] = 0

    topics: Annotated[list[str], Wire("string[]")] = field(default_factory=list)
    version: Annotated[int, Wire("int64")] = 0
    timestamp: Annotated[int, Wire("int64")] = 0


# --- keys and values as bytes ---

# key type -> key, value, the highest value version we read
SCHEMAS: dict[int, tuple[Any, Any, int]] = {
    0: (OffsetCommitKey, OffsetCommitValue, 4),
    1: (OffsetCommitKey, OffsetCommitValue, 4),
    2: (GroupMetadataKey, GroupMetadataValue, 4),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, 0),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue, 0),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, 0),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue, 0),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, 0),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, 0),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue, 0),
}


def encode(key: Any, value: Any | None) -> tuple[bytes, bytes | None]:
    key_bytes = bytearray(_INT16.pack(key.TYPE))
    write_message(key, 0, key_bytes)
    if value is None:
        return bytes(key_bytes), None
    version = _version_of(value)
    value_bytes = bytearray(_INT16.pack(version))
    write_message(value, version, value_bytes)
    return bytes(key_bytes), bytes(value_bytes)


def _version_of(value: Any) -> int:
    if isinstance(value, OffsetCommitValue):
        # Only version 1 can say when an offset expires; only 4 can name the topic's id.
        return 4 if value.expire_timestamp == -1 else 1
    return 3 if isinstance(value, GroupMetadataValue) else 0


def decode(key: Buffer, value: Buffer | None) -> tuple[Any, Any | None] | None:
    """The key and the value (None: a tombstone), or None where the type of key is not ours."""
    (key_type,) = _INT16.unpack_from(key)
    schema = SCHEMAS.get(key_type)
    if schema is None:
        return None
    key_class, value_class, highest_version = schema
    decoded_key, _ = read_message(key_class, 0, key, 2)
    if value is None:
        return decoded_key, None
    (version,) = _INT16.unpack_from(value)
    if not 0 <= version <= highest_version:
        raise ProtocolError(f"{value_class.__name__} has version {version}; we know 0 to {highest_version}")
    decoded_value, _ = read_message(value_class, version, value, 2)
    return decoded_key, decoded_value
