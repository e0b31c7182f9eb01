"""GetReplicaLogInfoRequest and GetReplicaLogInfoResponse (KIP-966).

Written by hand, in the form of the generated modules: the API is in Kafka's sources, and in no release yet.
"""

from dataclasses import field
from typing import Annotated, ClassVar
from uuid import UUID

from odradek.model import NO_TOPIC_ID
from odradek.wire.codec import Wire, wire_struct


@wire_struct
class TopicPartitions:
    topic_id: Annotated[UUID, Wire("uuid")] = NO_TOPIC_ID
    partitions: Annotated[list[int], Wire("int32[]")] = field(default_factory=list)


@wire_struct
class GetReplicaLogInfoRequest:
    API_KEY: ClassVar[int] = 93
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_SINCE: ClassVar[int] = 0

    topic_partitions: Annotated[list[TopicPartitions] | None, Wire("struct[]", nullable_since=0)] = field(
        default_factory=list
    )


@wire_struct
class PartitionLogInfo:
    partition: Annotated[int, Wire("int32")] = 0
    last_written_leader_epoch: Annotated[int, Wire("int32")] = 0
    current_leader_epoch: Annotated[int, Wire("int32")] = 0
    log_end_offset: Annotated[int, Wire("int64")] = 0
    error_code: Annotated[int, Wire("int16")] = 0


@wire_struct
class TopicPartitionLogInfo:
    topic_id: Annotated[UUID, Wire("uuid")] = NO_TOPIC_ID
    partition_log_info: Annotated[list[PartitionLogInfo], Wire("struct[]")] = field(default_factory=list)


@wire_struct
class GetReplicaLogInfoResponse:
    API_KEY: ClassVar[int] = 93
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_SINCE: ClassVar[int] = 0

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    broker_epoch: Annotated[int, Wire("int64")] = 0
    has_more_data: Annotated[bool, Wire("bool")] = False
    topic_partition_log_info_list: Annotated[list[TopicPartitionLogInfo], Wire("struct[]")] = field(
        default_factory=list
    )
