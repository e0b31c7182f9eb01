"""The records of the metadata log, in Kafka's schemas and frame, so that Kafka's own tools can read our log.

    frame version   uvarint   always 1
    record type     uvarint   API_KEY
    version         uvarint
    the record      as the codec writes this version of it

VERSION is the newest version of each type that we know; all versions up to it are read. Older ones are written where
they say the same (`written_version`), because the cluster's metadata.version may not allow the newest. Delegation
tokens are not supported yet: a log that contains them is refused.
"""

from dataclasses import field
from typing import Annotated, ClassVar
from uuid import UUID

from odradek.errors import ProtocolError
from odradek.model import NO_TOPIC_ID
from odradek.wire.codec import Buffer, Wire, read_message, read_uvarint, wire_struct, write_message

FRAME_VERSION = 1

NO_LEADER = -1
NO_LEADER_CHANGE = -2
OWN_TAG = 10_000  # of fields that Kafka does not have, and skips


@wire_struct
class MetadataRecord:
    """The base of all types."""

    API_KEY: ClassVar[int]
    VERSION: ClassVar[int] = 0
    FLEXIBLE_SINCE: ClassVar[int] = 0

    def written_version(self) -> int:
        return self.VERSION


@wire_struct
class BrokerEndpoint:
    name: Annotated[str, Wire("string")] = ""
    host: Annotated[str, Wire("string")] = ""
    port: Annotated[int, Wire("uint16")] = 0
    security_protocol: Annotated[int, Wire("int16")] = 0


@wire_struct
class SupportedFeature:
    name: Annotated[str, Wire("string")] = ""
    min_supported_version: Annotated[int, Wire("int16")] = 0
    max_supported_version: Annotated[int, Wire("int16")] = 0


@wire_struct
class RegisterBrokerRecord(MetadataRecord):
    API_KEY: ClassVar[int] = 0
    VERSION: ClassVar[int] = 4

    broker_id: Annotated[int, Wire("int32")] = 0
    is_migrating_zk_broker: Annotated[bool, Wire("bool", since=2)] = False
    incarnation_id: Annotated[UUID, Wire("uuid")] = NO_TOPIC_ID
    broker_epoch: Annotated[int, Wire("int64")] = 0
    end_points: Annotated[list[BrokerEndpoint], Wire("struct[]")] = field(default_factory=list)
    features: Annotated[list[SupportedFeature], Wire("struct[]")] = field(default_factory=list)
    rack: Annotated[str | None, Wire("string", nullable_since=0)] = None
    fenced: Annotated[bool, Wire("bool")] = True
    in_controlled_shutdown: Annotated[bool, Wire("bool", since=1)] = False
    log_dirs: Annotated[list[UUID], Wire("uuid[]", since=3, tag=0, tag_since=3)] = field(default_factory=list)
    # None until the broker's heartbeats have said which.
    cordoned_log_dirs: Annotated[
        list[UUID] | None, Wire("uuid[]", since=4, nullable_since=4, tag=1, tag_since=4)
    ] = None
    is_full: Annotated[bool, Wire("bool", tag=OWN_TAG)] = False  # Odradek's own: its disk has no room

    def written_version(self) -> int:
        return 3 if self.cordoned_log_dirs is None else 4


@wire_struct
class UnregisterBrokerRecord(MetadataRecord):
    API_KEY: ClassVar[int] = 1

    broker_id: Annotated[int, Wire("int32")] = 0
    broker_epoch: Annotated[int, Wire("int64")] = 0


@wire_struct
class TopicRecord(MetadataRecord):
    API_KEY: ClassVar[int] = 2

    name: Annotated[str, Wire("string")] = ""
    topic_id: Annotated[UUID, Wire("uuid")] = NO_TOPIC_ID


@wire_struct
class PartitionRecord(MetadataRecord):
    API_KEY: ClassVar[int] = 3
    VERSION: ClassVar[int] = 2

    partition_id: Annotated[int, Wire("int32")] = -1
    topic_id: Annotated[UUID, Wire("uuid")] = NO_TOPIC_ID
    replicas: Annotated[list[int], Wire("int32[]")] = field(default_factory=list)
    isr: Annotated[list[int], Wire("int32[]")] = field(default_factory=list)
    removing_replicas: Annotated[list[int], Wire("int32[]")] = field(default_factory=list)
    adding_replicas: Annotated[list[int], Wire("int32[]")] = field(default_factory=list)
    leader: Annotated[int, Wire("int32")] = NO_LEADER
    leader_recovery_state: Annotated[int, Wire("int8", tag=0)] = 0
    leader_epoch: Annotated[int, Wire("int32")] = -1
    partition_epoch: Annotated[int, Wire("int32")] = -1
    directories: Annotated[list[UUID], Wire("uuid[]", since=1)] = field(default_factory=list)
    eligible_leader_replicas: Annotated[
        list[int] | None, Wire("int32[]", since=2, nullable_since=2, tag=1, tag_since=2)
    ] = None
    last_known_elr: Annotated[
        list[int] | None, Wire("int32[]", since=2, nullable_since=2, tag=2, tag_since=2)
    ] = None


@wire_struct
class ConfigRecord(MetadataRecord):
    """One key of one resource; a null value removes it."""

    API_KEY: ClassVar[int] = 4

    resource_type: Annotated[int, Wire("int8")] = 0
    resource_name: Annotated[str, Wire("string")] = ""
    name: Annotated[str, Wire("string")] = ""
    value: Annotated[str | None, Wire("string", nullable_since=0)] = None


@wire_struct
class PartitionChangeRecord(MetadataRecord):
    """A change of a partition; fields at their defaults have not changed."""

    API_KEY: ClassVar[int] = 5
    VERSION: ClassVar[int] = 2

    partition_id: Annotated[int, Wire("int32")] = -1
    topic_id: Annotated[UUID, Wire("uuid")] = NO_TOPIC_ID
    isr: Annotated[list[int] | None, Wire("int32[]", nullable_since=0, tag=0)] = None
    leader: Annotated[int, Wire("int32", tag=1)] = NO_LEADER_CHANGE
    replicas: Annotated[list[int] | None, Wire("int32[]", nullable_since=0, tag=2)] = None
    removing_replicas: Annotated[list[int] | None, Wire("int32[]", nullable_since=0, tag=3)] = None
    adding_replicas: Annotated[list[int] | None, Wire("int32[]", nullable_since=0, tag=4)] = None
    leader_recovery_state: Annotated[int, Wire("int8", tag=5)] = -1
    eligible_leader_replicas: Annotated[
        list[int] | None, Wire("int32[]", since=2, nullable_since=2, tag=6, tag_since=2)
    ] = None
    last_known_elr: Annotated[
        list[int] | None, Wire("int32[]", since=2, nullable_since=2, tag=7, tag_since=2)
    ] = None
    directories: Annotated[
        list[UUID] | None, Wire("uuid[]", since=1, nullable_since=1, tag=8, tag_since=1)
    ] = None


@wire_struct
class FenceBrokerRecord(MetadataRecord):
    API_KEY: ClassVar[int] = 7

    id: Annotated[int, Wire("int32")] = 0
    epoch: Annotated[int, Wire("int64")] = 0


@wire_struct
class UnfenceBrokerRecord(MetadataRecord):
    API_KEY: ClassVar[int] = 8

    id: Annotated[int, Wire("int32")] = 0
    epoch: Annotated[int, Wire("int64")] = 0


@wire_struct
class RemoveTopicRecord(MetadataRecord):
    API_KEY: ClassVar[int] = 9

    topic_id: Annotated[UUID, Wire("uuid")] = NO_TOPIC_ID


@wire_struct
class FeatureLevelRecord(MetadataRecord):
    API_KEY: ClassVar[int] = 12

    name: Annotated[str, Wire("string")] = ""
    feature_level: Annotated[int, Wire("int16")] = 0


@wire_struct
class QuotaEntity:
    entity_type: Annotated[str, Wire("string")] = ""
    entity_name: Annotated[str | None, Wire("string", nullable_since=0)] = None


@wire_struct
class ClientQuotaRecord(MetadataRecord):
    API_KEY: ClassVar[int] = 14

    entity: Annotated[list[QuotaEntity], Wire("struct[]")] = field(default_factory=list)
    key: Annotated[str, Wire("string")] = ""
    value: Annotated[float, Wire("float64")] = 0.0
    remove: Annotated[bool, Wire("bool")] = False


@wire_struct
class UserScramCredentialRecord(MetadataRecord):
    """A user may log in with SCRAM. It replaces an earlier credential of the same user and mechanism."""

    API_KEY: ClassVar[int] = 11

    name: Annotated[str, Wire("string")] = ""
    mechanism: Annotated[int, Wire("int8")] = 0
    salt: Annotated[bytes, Wire("bytes")] = b""
    stored_key: Annotated[bytes, Wire("bytes")] = b""
    server_key: Annotated[bytes, Wire("bytes")] = b""
    iterations: Annotated[int, Wire("int32")] = 0


@wire_struct
class RemoveUserScramCredentialRecord(MetadataRecord):
    API_KEY: ClassVar[int] = 22

    name: Annotated[str, Wire("string")] = ""
    mechanism: Annotated[int, Wire("int8")] = 0


@wire_struct
class ProducerIdsRecord(MetadataRecord):
    """Producer ids below `next_producer_id` are allocated."""

    API_KEY: ClassVar[int] = 15

    broker_id: Annotated[int, Wire("int32")] = 0
    broker_epoch: Annotated[int, Wire("int64")] = -1
    next_producer_id: Annotated[int, Wire("int64")] = 0


@wire_struct
class BrokerRegistrationChangeRecord(MetadataRecord):
    """A change of a broker. `fenced`: 1 fences it, -1 unfences it; `in_controlled_shutdown`: 1 begins it; `full` is
    Odradek's own: 1 if its disk has no room, -1 once it has; 0 is no change, and so is a null list."""

    API_KEY: ClassVar[int] = 17
    VERSION: ClassVar[int] = 3

    broker_id: Annotated[int, Wire("int32")] = 0
    broker_epoch: Annotated[int, Wire("int64")] = 0
    fenced: Annotated[int, Wire("int8", tag=0)] = 0
    in_controlled_shutdown: Annotated[int, Wire("int8", since=1, tag=1, tag_since=1)] = 0
    log_dirs: Annotated[list[UUID], Wire("uuid[]", since=2, tag=2, tag_since=2)] = field(default_factory=list)
    cordoned_log_dirs: Annotated[
        list[UUID] | None, Wire("uuid[]", since=3, nullable_since=3, tag=3, tag_since=3)
    ] = None
    full: Annotated[int, Wire("int8", tag=OWN_TAG)] = 0

    def written_version(self) -> int:
        return 2 if self.cordoned_log_dirs is None else 3


@wire_struct
class AccessControlEntryRecord(MetadataRecord):
    """An ACL. It is known by its id."""

    API_KEY: ClassVar[int] = 18

    id: Annotated[UUID, Wire("uuid")] = NO_TOPIC_ID
    resource_type: Annotated[int, Wire("int8")] = 0
    resource_name: Annotated[str, Wire("string")] = ""
    pattern_type: Annotated[int, Wire("int8")] = 0
    principal: Annotated[str, Wire("string")] = ""
    host: Annotated[str, Wire("string")] = ""
    operation: Annotated[int, Wire("int8")] = 0
    permission_type: Annotated[int, Wire("int8")] = 0


@wire_struct
class RemoveAccessControlEntryRecord(MetadataRecord):
    API_KEY: ClassVar[int] = 19

    id: Annotated[UUID, Wire("uuid")] = NO_TOPIC_ID


@wire_struct
class NoOpRecord(MetadataRecord):
    API_KEY: ClassVar[int] = 20


@wire_struct
class BeginTransactionRecord(MetadataRecord):
    """The following records take effect only with an EndTransactionRecord."""

    API_KEY: ClassVar[int] = 23

    name: Annotated[str | None, Wire("string", nullable_since=0, tag=0)] = None


@wire_struct
class EndTransactionRecord(MetadataRecord):
    API_KEY: ClassVar[int] = 24


@wire_struct
class AbortTransactionRecord(MetadataRecord):
    API_KEY: ClassVar[int] = 25

    reason: Annotated[str | None, Wire("string", nullable_since=0, tag=0)] = None


@wire_struct
class RegisterControllerRecord(MetadataRecord):
    API_KEY: ClassVar[int] = 27

    controller_id: Annotated[int, Wire("int32")] = 0
    incarnation_id: Annotated[UUID, Wire("uuid")] = NO_TOPIC_ID
    zk_migration_ready: Annotated[bool, Wire("bool")] = False
    end_points: Annotated[list[BrokerEndpoint], Wire("struct[]")] = field(default_factory=list)
    features: Annotated[list[SupportedFeature], Wire("struct[]")] = field(default_factory=list)


RECORD_TYPES: dict[int, type[MetadataRecord]] = {
    record_type.API_KEY: record_type
    for record_type in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        FeatureLevelRecord,
        UserScramCredentialRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        NoOpRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RegisterControllerRecord,
    )
}


def encode_record(record: MetadataRecord) -> bytes:
    """The record in its frame: the value of a record in the metadata log, whose key is null."""
    version = record.written_version()
    out = bytearray((FRAME_VERSION, record.API_KEY, version))
    write_message(record, version, out)
    return bytes(out)


def decode_record(value: Buffer) -> MetadataRecord:
    """Raises ProtocolError for a record of a newer release, or a damaged one."""
    try:
        frame_version, position = read_uvarint(value, 0)
        api_key, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except (IndexError, ValueError) as error:
        raise ProtocolError(f"metadata record without a frame: {error}") from None
    record_type = RECORD_TYPES.get(api_key)
    if frame_version != FRAME_VERSION or record_type is None or version > record_type.VERSION:
        raise ProtocolError(
            f"unknown metadata record: frame {frame_version}, type {api_key}, version {version}"
        )
    record, position = read_message(record_type, version, value, position)
    if position != len(value):
        raise ProtocolError(f"{len(value) - position} bytes too many after {record_type.__name__}")
    return record
