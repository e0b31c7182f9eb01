"""DeleteRecords (21): everything below an offset is gone for good; -1 means up to the high watermark.

The new log start offsets of all partitions are written to disk together. Nothing below them is readable from then on;
the segments are deleted with the log's next maintenance. The response waits until every replica whose broker is alive
has deleted the same (`low_watermarks`), or for the request's timeout: then it is REQUEST_TIMED_OUT, and the followers
delete the records later. A record that was acknowledged with acks=1 may be deleted at once (see `own_writes`).
"""

import logging
from collections.abc import Mapping

from odradek.errors import ErrorCode, KafkaError
from odradek.host.log_lines import fields
from odradek.model import INTERNAL_TOPICS, TopicPartition
from odradek.replication.leader import Leader
from odradek.replication.progress import UNKNOWN_OFFSET
from odradek.services.partitions.low_watermarks import LowWatermarks
from odradek.services.partitions.own_writes import OwnWrites
from odradek.serving.naming import request_fields, sender_of
from odradek.serving.request import Request
from odradek.serving.services import Services
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


class Deletion:
    """The deletions of one request: the logs whose start moves, and the results that tell of each."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.response = DeleteRecordsResponse(topics=[])
        self.offsets: dict[Leader, int] = {}
        self.results: dict[Leader, list[DeleteRecordsPartitionResult]] = {}
        self.low_watermarks = LowWatermarks(services)

    def add(self, leader: Leader, offset: int, result: DeleteRecordsPartitionResult) -> None:
        self.offsets[leader] = max(self.offsets.get(leader, 0), offset)
        self.results.setdefault(leader, []).append(result)

    def carry_out(self, request: Request) -> None:
        """All in one turn: a topic may have been deleted while a large request was looked through."""
        moving = {
            leader.topic_partition: offset
            for leader, offset in self.offsets.items()
            if not leader.closed_with and offset > leader.log.log_start_offset
        }
        starts = {leader.topic_partition: leader.log.log_start_offset for leader in self.offsets}
        errors = self._services.partitions.delete_records(moving)
        _log_deleted(request, starts, {name: offset for name, offset in moving.items() if name not in errors})
        for leader, offset in self.offsets.items():
            error = errors.get(leader.topic_partition)
            if leader.closed_with or error is not None:
                self._tell(leader, error.code if error is not None else leader.closed_with)
                continue
            if leader.topic_partition in moving:
                leader.log_start_moved()
            self._tell(leader, ErrorCode.NONE, self.low_watermarks.of(leader))
            self.low_watermarks.expect(leader, offset)

    def _tell(self, leader: Leader, code: ErrorCode, low_watermark: int = UNKNOWN_OFFSET) -> None:
        for result in self.results[leader]:
            result.error_code, result.low_watermark = code, low_watermark

    async def everywhere(self, timeout_ms: int) -> DeleteRecordsResponse:
        """The response, once all replicas have deleted the records, or the time is up. What then is missing is told
        with the low watermark that it had at first, as in Kafka."""
        waits_for = list(self.low_watermarks.awaited)
        await self.low_watermarks.reached(timeout_ms)
        for leader in waits_for:
            if leader.closed_with:
                self._tell(leader, leader.closed_with)
            elif leader in self.low_watermarks.awaited:
                for result in self.results[leader]:
                    result.error_code = ErrorCode.REQUEST_TIMED_OUT
            else:
                self._tell(leader, ErrorCode.NONE, self.low_watermarks.of(leader))
        return self.response


def handle(
    services: Services, request: Request, message: DeleteRecordsRequest
) -> Steps[DeleteRecordsResponse | None]:
    own_writes = OwnWrites(services)
    for topic in message.topics:
        for asked in topic.partitions:
            own_writes.expect(topic.name, asked.partition_index, asked.offset)
            yield
    if own_writes:
        request.then(_answer_after(own_writes, services, request, message))
        return None
    deletion = yield from _delete(services, request, message)
    if deletion.low_watermarks:
        request.then(deletion.everywhere(message.timeout_ms))
        return None
    return deletion.response


async def _answer_after(
    own_writes: OwnWrites, services: Services, request: Request, message: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    await own_writes.committed(message.timeout_ms)
    deletion = await services.node.turns.complete(_delete(services, request, message))
    return await deletion.everywhere(message.timeout_ms)


def _delete(services: Services, request: Request, message: DeleteRecordsRequest) -> Steps[Deletion]:
    deletion = Deletion(services)
    for topic in message.topics:
        results: list[DeleteRecordsPartitionResult] = []
        for asked in topic.partitions:
            name = TopicPartition(topic.name, asked.partition_index)
            result = DeleteRecordsPartitionResult(asked.partition_index, low_watermark=UNKNOWN_OFFSET)
            results.append(result)
            try:
                deletion.add(*_new_start(services, name, asked.offset), result)
            except KafkaError as error:
                result.error_code = error.code
            yield
        deletion.response.topics.append(DeleteRecordsTopicResult(topic.name, results))
    deletion.carry_out(request)
    return deletion


def _new_start(services: Services, name: TopicPartition, asked: int) -> tuple[Leader, int]:
    """Which log is to start where; refused as Kafka refuses it."""
    if name.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    leader = services.partitions.replicas.leader(*name)
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
