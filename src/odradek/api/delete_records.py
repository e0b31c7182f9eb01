"""DeleteRecords (21): everything below an offset is gone for good; -1 means up to the high watermark.

The new log starts of all partitions are on disk, by one write, before the response leaves. Nothing below them is
readable from then on; the segments go when the log is next looked after.
"""

from odradek.api.request import Request
from odradek.api.services import Services
from odradek.errors import ErrorCode, KafkaError
from odradek.model import INTERNAL_TOPICS, TopicPartition
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

UP_TO_HIGH_WATERMARK = -1


def handle(services: Services, request: Request, message: DeleteRecordsRequest) -> DeleteRecordsResponse:
    results: dict[TopicPartition, list[DeleteRecordsPartitionResult]] = {}
    offsets: dict[TopicPartition, int] = {}
    response = DeleteRecordsResponse(topics=[])
    for topic in message.topics:
        answers = []
        for asked in topic.partitions:
            name = TopicPartition(topic.name, asked.partition_index)
            answer = DeleteRecordsPartitionResult(asked.partition_index, low_watermark=-1)
            answers.append(answer)
            try:
                offsets[name] = max(offsets.get(name, 0), _new_start(services, name, asked.offset))
                results.setdefault(name, []).append(answer)
            except KafkaError as error:
                answer.error_code = error.code
        response.topics.append(DeleteRecordsTopicResult(topic.name, answers))
    errors = services.delete_records(offsets)
    for name, answers in results.items():
        for answer in answers:
            if name in errors:
                answer.error_code = errors[name].code
            else:
                answer.low_watermark = services.replicas.get(*name).log.log_start_offset
    return response


def _new_start(services: Services, name: TopicPartition, asked: int) -> int:
    """Where the log of a partition is to start; refused as Kafka refuses it."""
    if name.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = services.replicas.get(*name)
    if not partition.log.config.delete:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    offset = partition.high_watermark if asked == UP_TO_HIGH_WATERMARK else asked
    if not 0 <= offset <= partition.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return offset
