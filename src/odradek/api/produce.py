"""Produce (0): append a batch to each partition named.

- Batches are checked by header and CRC, given their offset in place, and written as they came; records are
  decoded only where the topic's settings need it (see `records.validation`).
- acks=0 is never answered, and an error then closes the connection; acks=1 is answered once written; acks=all
  once committed, which includes being on disk (see `replication.partition`), or at the request's timeout with
  REQUEST_TIMED_OUT.
- A batch that was appended before (idempotent producer) is answered with its first offset.

Left out: transactions. A transactional Produce is refused with INVALID_TXN_STATE.
"""

from functools import partial

from odradek.api.request import Request
from odradek.api.services import Services, Timer
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.records.batch import NO_TIMESTAMP, TRANSACTIONAL
from odradek.records.record import TimestampType
from odradek.records.validation import NotOneBatch, RejectedRecords, check_batch, prepare_batch
from odradek.replication.partition import Partition
from odradek.storage.log import Appended
from odradek.wire.produce import (
    TOPIC_IDS_SINCE,
    PartitionAnswer,
    ProduceRequest,
    TopicAnswer,
    TopicBatches,
    encode_produce_response,
)

ALL = -1
# Refusals that do not say where the log starts.
TELL_NOTHING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_REQUIRED_ACKS,
    }
)

Uncommitted = tuple[Partition, int, PartitionAnswer]  # the offset that the high watermark has to reach


def handle(services: Services, request: Request, message: ProduceRequest) -> None:
    appending = Appending(services, request, message)
    answers = [(topic, appending.append_topic(topic)) for topic in message.topics]
    if message.acks == 0:
        finish_without_answer(request, answers)
    elif appending.uncommitted:
        Acknowledgement(request, answers).wait(services, appending.uncommitted, message.timeout_ms)
    else:
        send(request, answers)


def send(request: Request, answers: list[TopicAnswer]) -> None:
    request.answer_parts((encode_produce_response(request.version, request.correlation_id, answers),))


def finish_without_answer(request: Request, answers: list[TopicAnswer]) -> None:
    """acks=0: the client hears of an error by losing its connection."""
    codes = {answer.error_code for _, partitions in answers for answer in partitions if answer.error_code}
    if codes:
        names = ", ".join(sorted(ErrorCode(code).name for code in codes))
        raise ProtocolError(f"Produce with acks=0 failed with {names}")
    request.answer_nothing()


class Appending:
    """The appends of one request, and which of them have yet to be committed."""

    __slots__ = ("_acks", "_is_transactional", "_services", "_version", "uncommitted")

    def __init__(self, services: Services, request: Request, message: ProduceRequest) -> None:
        self._services = services
        self._version = request.version
        self._acks = message.acks
        self._is_transactional = message.transactional_id is not None
        self.uncommitted: list[Uncommitted] = []

    def append_topic(self, topic: TopicBatches) -> list[PartitionAnswer]:
        name: str | None = topic.name
        if self._version >= TOPIC_IDS_SINCE:
            name = self._services.topic_name(topic.topic_id)
        return [self._append_partition(name, index, records) for index, records in topic.partitions]

    def _append_partition(self, topic: str | None, index: int, records: memoryview | None) -> PartitionAnswer:
        try:
            return self._append(topic, index, records)
        except KafkaError as error:
            return self._refuse(topic, index, error)

    def _refuse(self, topic: str | None, index: int, error: KafkaError) -> PartitionAnswer:
        answer = PartitionAnswer(index, error.code, error_message=error.message or None)
        partition = self._services.replicas.find(topic or "", index)
        if partition and error.code not in TELL_NOTHING and not isinstance(error, NotOneBatch):
            answer.log_start_offset = partition.log.log_start_offset
        if isinstance(error, RejectedRecords):
            answer.record_errors = error.record_errors
        return answer

    def _append(self, topic: str | None, index: int, records: memoryview | None) -> PartitionAnswer:
        if self._acks not in (0, 1, ALL):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._services.replicas.get(topic, index)
        if self._acks == ALL:
            partition.check_enough_replicas()
        base_offset, last_offset, is_duplicate, timestamp = self._append_batch(partition, records)
        keeps_append_time = partition.rules.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        if not keeps_append_time and not is_duplicate:
            timestamp = NO_TIMESTAMP
        answer = PartitionAnswer(index, 0, base_offset, timestamp, partition.log.log_start_offset)
        if self._acks == ALL and last_offset >= partition.high_watermark:
            self.uncommitted.append((partition, last_offset + 1, answer))
        return answer

    def _append_batch(self, partition: Partition, batch: memoryview | None) -> Appended:
        if not batch:
            raise NotOneBatch(ErrorCode.INVALID_RECORD, "a partition without records")
        if partition.closed_with:
            raise KafkaError(partition.closed_with)
        rules, now_ms = partition.rules, self._services.now_ms()
        header = check_batch(batch, rules.max_message_bytes, self._version)
        if self._is_transactional or header.attributes & TRANSACTIONAL:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "transactions are not supported")
        prepared, header = prepare_batch(batch, header, rules, now_ms)
        appended = partition.log.append_as_leader(prepared, header, partition.leader_epoch, now_ms)
        self._services.appended(partition)
        return appended


class Acknowledgement:
    """An answer that waits until all its batches are committed, or for its time to run out."""

    __slots__ = ("_answers", "_remaining", "_request", "_timer")

    def __init__(self, request: Request, answers: list[TopicAnswer]) -> None:
        self._request = request
        self._answers = answers
        self._remaining: dict[int, PartitionAnswer] = {}
        self._timer: Timer | None = None

    def wait(self, services: Services, uncommitted: list[Uncommitted], timeout_ms: int) -> None:
        self._remaining = {position: answer for position, (_, _, answer) in enumerate(uncommitted)}
        self._timer = services.deadlines.add(max(timeout_ms, 0), self._time_out)
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
    def _fail(answer: PartitionAnswer, error: ErrorCode) -> None:
        answer.error_code = error
        answer.base_offset = -1

    def _send(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        send(self._request, self._answers)
