"""GetReplicaLogInfo (93): the active controller asks where the logs of replicas on this broker end (KIP-966).

It asks when all in-sync replicas of a partition were killed, and elects a leader by the responses of their brokers
(`controller.recovery`). A log that is known to be damaged, because it ends before its recovery point or cannot be read
to its end, gets KAFKA_STORAGE_ERROR. The broker epoch is -1 until the metadata has the registration of this process.

Left out: more than 1,000 partitions in one response; `has_more_data` says that some are missing, as in Kafka.
"""

from odradek.errors import ErrorCode, KafkaError
from odradek.replication.replica import NO_EPOCH
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.codec import Steps
from odradek.wire.messages.get_replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)

MAX_PARTITIONS = 1_000
NO_OFFSET = -1


def handle(
    services: Services, request: Request, message: GetReplicaLogInfoRequest
) -> Steps[GetReplicaLogInfoResponse]:
    response = GetReplicaLogInfoResponse(broker_epoch=services.node.broker_epoch())
    count = 0
    for asked in message.topic_partitions or ():
        topic = services.cluster.image.topics_by_id.get(asked.topic_id)
        topic_info = TopicPartitionLogInfo(asked.topic_id)
        response.topic_partition_log_info_list.append(topic_info)
        for index in asked.partitions:
            if count == MAX_PARTITIONS:
                response.has_more_data = True
                return response
            count += 1
            topic_info.partition_log_info.append(
                _log_info(services, None if topic is None else topic.name, index)
            )
            yield
    return response


def _log_info(services: Services, topic: str | None, index: int) -> PartitionLogInfo:
    try:
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        replica = services.partitions.replicas.get(topic, index)
    except KafkaError as error:  # not here, or its log could not be opened yet
        code = ErrorCode.REPLICA_NOT_AVAILABLE if error.code is ErrorCode.KAFKA_STORAGE_ERROR else error.code
        return PartitionLogInfo(index, NO_EPOCH, NO_EPOCH, NO_OFFSET, code)
    log = replica.log
    is_damaged = log.failed or log.missing_until or log.damage is not None
    return PartitionLogInfo(
        index,
        log.leader_epochs.epoch_for_offset(log.end_offset - 1),
        replica.leader_epoch,
        log.end_offset,
        ErrorCode.KAFKA_STORAGE_ERROR if is_damaged else ErrorCode.NONE,
    )
