"""Produce (0): append a batch to each partition named.

- Batches are checked by header and CRC, given their offset in place, and written as they came; records are
  decoded only where the topic's settings need it (see `records.validation`).
- acks=0 is never answered, and an error then closes the connection; acks=1 is answered once written; acks=all
  once committed, which includes being on disk (see `replication.partition`), or at the request's timeout with
  REQUEST_TIMED_OUT.
- A batch that was appended before (idempotent producer) is answered with its first offset.

Left out: transactions. A transactional Produce is refused with INVALID_TXN_STATE.
"""

import logging
from collections.abc import Iterator
from functools import partial

from odradek.api.request import Request
from odradek.api.services import Services, Timer
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.records.batch import NO_TIMESTAMP, BatchHeader
from odradek.records.record import TimestampType
from odradek.records.validation import RejectedRecords, check_batch, prepare_batch
from odradek.replication.partition import Partition
from odradek.storage.log import Appended
from odradek.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

log = logging.getLogger(__name__)

ALL = -1


def handle(services: Services, request: Request, message: ProduceRequest) -> ProduceResponse | None:
    appending = Appending(services, request, message)
    answer = ProduceResponse([appending.append_topic(topic) for topic in message.topic_data])
    if message.acks == 0:
        appending.finish_without_answer(answer)
        return None
    if not appending.uncommitted:
        return answer
    Acknowledgement(request, answer).wait(services, appending.uncommitted, message.timeout_ms)
    return None


class Appending:
    """The appends of one request, and which of them have yet to be committed."""

    def __init__(self, services: Services, request: Request, message: ProduceRequest) -> None:
        self.services = services
        self.request = request
        self.acks = message.acks
        self.is_transactional = message.transactional_id is not None
        self.uncommitted: list[tuple[Partition, int, PartitionProduceResponse]] = []

    def append_topic(self, topic: TopicProduceData) -> TopicProduceResponse:
        name: str | None = topic.name
        if self.request.version >= 13:
            name = self.services.topic_name(topic.topic_id)
        answers = [self.append_partition(name, data) for data in topic.partition_data]
        return TopicProduceResponse(topic.topic_id, topic.name, answers)

    def append_partition(self, topic: str | None, data: PartitionProduceData) -> PartitionProduceResponse:
        try:
            return self._append(topic, data)
        except KafkaError as error:
            return refusal(data.index, error)

    def _append(self, topic: str | None, data: PartitionProduceData) -> PartitionProduceResponse:
        if self.acks not in (0, 1, ALL):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self.services.replicas.get(topic, data.index)
        if self.acks == ALL:
            partition.check_enough_replicas()
        appended = self._append_batch(partition, data.records)
        answer = PartitionProduceResponse(
            index=data.index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.timestamp
            if partition.rules.message_timestamp_type is TimestampType.LOG_APPEND_TIME
            else NO_TIMESTAMP,
            log_start_offset=partition.log.log_start_offset,
        )
        if self.acks == ALL and appended.last_offset >= partition.high_watermark:
            self.uncommitted.append((partition, appended.last_offset + 1, answer))
        return answer

    def _append_batch(self, partition: Partition, records: bytes | memoryview | None) -> Appended:
        if not records:
            raise KafkaError(ErrorCode.INVALID_RECORD, "a partition without records")
        rules, now_ms = partition.rules, self.services.now_ms()
        batch = memoryview(records)
        header = check_batch(batch, rules.max_message_bytes, self.request.version)
        self._check_not_transactional(header)
        batch, header = prepare_batch(batch, header, rules, now_ms)
        appended = partition.log.append_as_leader(batch, header, partition.leader_epoch, now_ms)
        self.services.appended(partition)
        return appended

    def _check_not_transactional(self, header: BatchHeader) -> None:
        if self.is_transactional or header.is_transactional:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "transactions are not supported")

    def finish_without_answer(self, answer: ProduceResponse) -> None:
        """acks=0: the client hears of an error by losing its connection."""
        errors = [
            ErrorCode(result.error_code).name for result in partition_answers(answer) if result.error_code
        ]
        if errors:
            raise ProtocolError(f"Produce with acks=0 failed with {', '.join(sorted(set(errors)))}")
        self.request.answer_nothing()


def partition_answers(answer: ProduceResponse) -> Iterator[PartitionProduceResponse]:
    for topic in answer.responses:
        yield from topic.partition_responses


def refusal(index: int, error: KafkaError) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=-1, error_message=error.message or None
    )
    if isinstance(error, RejectedRecords):
        answer.record_errors = [BatchIndexAndErrorMessage(at, why) for at, why in error.record_errors]
    return answer


class Acknowledgement:
    """An answer that waits until all its batches are committed, or for its time to run out."""

    __slots__ = ("_answer", "_remaining", "_request", "_timer")

    def __init__(self, request: Request, answer: ProduceResponse) -> None:
        self._request = request
        self._answer = answer
        self._remaining: dict[int, PartitionProduceResponse] = {}
        self._timer: Timer | None = None

    def wait(
        self,
        services: Services,
        uncommitted: list[tuple[Partition, int, PartitionProduceResponse]],
        timeout_ms: int,
    ) -> None:
        self._remaining = {position: answer for position, (_, _, answer) in enumerate(uncommitted)}
        self._timer = services.call_later(max(timeout_ms, 0) / 1000, self._time_out)
        for position, (partition, offset, _) in enumerate(uncommitted):
            partition.when_committed(offset, partial(self._committed, position))

    def _committed(self, position: int, error: ErrorCode) -> None:
        answer = self._remaining.pop(position, None)
        if answer is None:
            return
        if error:
            self._fail(answer, error)
        if not self._remaining:
            self._send()

    def _time_out(self) -> None:
        for answer in self._remaining.values():
            self._fail(answer, ErrorCode.REQUEST_TIMED_OUT)
        self._remaining = {}
        self._send()

    @staticmethod
    def _fail(answer: PartitionProduceResponse, error: ErrorCode) -> None:
        answer.error_code = error
        answer.base_offset = -1

    def _send(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._request.answer(self._answer)
