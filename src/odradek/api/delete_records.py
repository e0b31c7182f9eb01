"""DeleteRecords (21): everything below an offset is gone for good; -1 means up to the high watermark.

The new log starts of all partitions are on disk, by one write, before the response leaves. Nothing below them is
readable from then on; the segments go when the log is next looked after.
"""

import logging
from collections.abc import Mapping

from odradek.api.naming import request_fields, sender_of
from odradek.api.request import Request
from odradek.api.services import Services
from odradek.errors import ErrorCode, KafkaError
from odradek.host.log_lines import fields
from odradek.model import INTERNAL_TOPICS, TopicPartition
from odradek.replication.partition import Partition
from odradek.wire.codec import Steps
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from odradek.wording import some

log = logging.getLogger(__name__)

UP_TO_HIGH_WATERMARK = -1


def handle(
    services: Services, request: Request, message: DeleteRecordsRequest
) -> Steps[DeleteRecordsResponse]:
    results: dict[Partition, list[DeleteRecordsPartitionResult]] = {}
    offsets: dict[Partition, int] = {}
    response = DeleteRecordsResponse(topics=[])
    for topic in message.topics:
        answers: list[DeleteRecordsPartitionResult] = []
        for asked in topic.partitions:
            name = TopicPartition(topic.name, asked.partition_index)
            answer = DeleteRecordsPartitionResult(asked.partition_index, low_watermark=-1)
            answers.append(answer)
            try:
                partition, offset = _new_start(services, name, asked.offset)
                offsets[partition] = max(offsets.get(partition, 0), offset)
                results.setdefault(partition, []).append(answer)
            except KafkaError as error:
                answer.error_code = error.code
            yield
        response.topics.append(DeleteRecordsTopicResult(topic.name, answers))
    _delete(services, request, offsets, results)
    return response


def _delete(
    services: Services,
    request: Request,
    offsets: dict[Partition, int],
    results: dict[Partition, list[DeleteRecordsPartitionResult]],
) -> None:
    """All in one turn: a topic may have been deleted while a large request was looked through."""
    present = {
        partition.topic_partition: offset
        for partition, offset in offsets.items()
        if not partition.closed_with
    }
    starts = {partition.topic_partition: partition.log.log_start_offset for partition in offsets}
    errors = services.delete_records(present)
    _log_deleted(request, starts, {name: offset for name, offset in present.items() if name not in errors})
    for partition, answers in results.items():
        error = errors.get(partition.topic_partition)
        for answer in answers:
            if partition.closed_with or error is not None:
                answer.error_code = error.code if error is not None else partition.closed_with
            else:
                answer.low_watermark = partition.log.log_start_offset


def _new_start(services: Services, name: TopicPartition, asked: int) -> tuple[Partition, int]:
    """Which log is to start where; refused as Kafka refuses it."""
    if name.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = services.replicas.get(*name)
    if not partition.log.config.delete:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    offset = partition.high_watermark if asked == UP_TO_HIGH_WATERMARK else asked
    if not 0 <= offset <= partition.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return partition, offset


def _log_deleted(
    request: Request, starts: Mapping[TopicPartition, int], deleted: Mapping[TopicPartition, int]
) -> None:
    moved = [(name, offset) for name, offset in deleted.items() if offset > starts[name]]
    if not moved:
        return
    log.info(
        "%s deleted the records of %s",
        sender_of(request),
        some([f"{name} from offset {starts[name]} to {offset - 1}" for name, offset in moved]),
        extra=fields(topic=moved[0][0].topic, partitions=len(moved), **request_fields(request)),
    )
