"""DeleteRecords (21): everything below an offset is gone for good; -1 means up to the high watermark.

What is deleted is forgotten at once; its segments go when the log is next looked after.
"""

from odradek.api.request import Request
from odradek.api.services import Services
from odradek.errors import ErrorCode, KafkaError
from odradek.model import INTERNAL_TOPICS
from odradek.wire.codec import Steps
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

UP_TO_HIGH_WATERMARK = -1


def handle(
    services: Services, request: Request, message: DeleteRecordsRequest
) -> Steps[DeleteRecordsResponse]:
    answer = DeleteRecordsResponse()
    for topic in message.topics:
        results: list[DeleteRecordsPartitionResult] = []
        for asked in topic.partitions:
            results.append(_delete(services, topic.name, asked))
            yield
        answer.topics.append(DeleteRecordsTopicResult(topic.name, results))
    return answer


def _delete(services: Services, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(asked.partition_index, low_watermark=-1)
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = services.replicas.get(topic, asked.partition_index)
        if not partition.log.config.delete:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        end = partition.high_watermark
        offset = end if asked.offset == UP_TO_HIGH_WATERMARK else asked.offset
        if not 0 <= offset <= end:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        answer.low_watermark = partition.log.delete_records_before(offset)
    except KafkaError as error:
        answer.error_code = error.code
    return answer
