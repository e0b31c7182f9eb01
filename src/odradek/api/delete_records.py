"""DeleteRecords (21): everything below an offset is gone for good; -1 means up to the high watermark.

The new log start offsets of all partitions are on disk, with one write, before the response is sent. Nothing below them
is readable from then on; the segments are deleted with the log's next maintenance. A record that was acknowledged with
acks=1 may be deleted at once (see `own_writes`).
"""

import logging
from collections.abc import Mapping
from typing import Any

from odradek.errors import ErrorCode, KafkaError
from odradek.host.log_lines import fields
from odradek.model import INTERNAL_TOPICS, TopicPartition
from odradek.replication.leader import Leader
from odradek.requests.naming import request_fields, sender_of
from odradek.requests.request import Request
from odradek.requests.services import Services
from odradek.services.own_writes import OwnWrites
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


def handle(services: Services, request: Request, message: DeleteRecordsRequest) -> Steps[Any]:
    own_writes = OwnWrites(services)
    for topic in message.topics:
        for asked in topic.partitions:
            own_writes.expect(topic.name, asked.partition_index, asked.offset)
            yield
    if own_writes:
        return _answer_after(own_writes, services, request, message)
    return (yield from _answer(services, request, message))


async def _answer_after(
    own_writes: OwnWrites, services: Services, request: Request, message: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    await own_writes.committed(message.timeout_ms)
    return await services.turns.complete(_answer(services, request, message))


def _answer(
    services: Services, request: Request, message: DeleteRecordsRequest
) -> Steps[DeleteRecordsResponse]:
    results: dict[Leader, list[DeleteRecordsPartitionResult]] = {}
    offsets: dict[Leader, int] = {}
    response = DeleteRecordsResponse(topics=[])
    for topic in message.topics:
        answers: list[DeleteRecordsPartitionResult] = []
        for asked in topic.partitions:
            name = TopicPartition(topic.name, asked.partition_index)
            answer = DeleteRecordsPartitionResult(asked.partition_index, low_watermark=-1)
            answers.append(answer)
            try:
                leader, offset = _new_start(services, name, asked.offset)
                offsets[leader] = max(offsets.get(leader, 0), offset)
                results.setdefault(leader, []).append(answer)
            except KafkaError as error:
                answer.error_code = error.code
            yield
        response.topics.append(DeleteRecordsTopicResult(topic.name, answers))
    _delete(services, request, offsets, results)
    return response


def _delete(
    services: Services,
    request: Request,
    offsets: dict[Leader, int],
    results: dict[Leader, list[DeleteRecordsPartitionResult]],
) -> None:
    """All in one turn: a topic may have been deleted while a large request was looked through."""
    moving = {
        leader.topic_partition: offset
        for leader, offset in offsets.items()
        if not leader.closed_with and offset > leader.log.log_start_offset
    }
    starts = {leader.topic_partition: leader.log.log_start_offset for leader in offsets}
    errors = services.delete_records(moving)
    _log_deleted(request, starts, {name: offset for name, offset in moving.items() if name not in errors})
    for leader, answers in results.items():
        error = errors.get(leader.topic_partition)
        for answer in answers:
            if leader.closed_with or error is not None:
                answer.error_code = error.code if error is not None else leader.closed_with
            else:
                answer.low_watermark = leader.log.log_start_offset


def _new_start(services: Services, name: TopicPartition, asked: int) -> tuple[Leader, int]:
    """Which log is to start where; refused as Kafka refuses it."""
    if name.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    leader = services.replicas.leader(*name)
    if not leader.log.config.delete:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    offset = leader.high_watermark if asked == UP_TO_HIGH_WATERMARK else asked
    if not 0 <= offset <= leader.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return leader, offset


def _log_deleted(
    request: Request, starts: Mapping[TopicPartition, int], deleted: Mapping[TopicPartition, int]
) -> None:
    if not deleted:
        return
    log.info(
        "%s deleted the records of %s",
        sender_of(request),
        some([f"{name} from offset {starts[name]} to {offset - 1}" for name, offset in deleted.items()]),
        extra=fields(topic=next(iter(deleted)).topic, partitions=len(deleted), **request_fields(request)),
    )
