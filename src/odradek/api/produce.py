"""Produce (0): append a batch to each partition named.

- Batches are checked by header and CRC, given their offset in place, and written as they came; records are
  decoded only where the topic's settings need it (see `records.validation`).
- The requests that arrived together, in one read from a connection, are handled together: what they bring to a
  partition is one write, and those that wait for the same partitions wait as one. A request that came alone is a
  run of one.
- acks=0 is never answered, and an error then closes the connection; acks=1 is answered once written; acks=all
  once committed, which includes being on disk (see `replication.partition`), or at the request's timeout with
  REQUEST_TIMED_OUT.
- A batch that was appended before (idempotent producer) is answered with its first offset.

Left out: transactions. A transactional Produce is refused with INVALID_TXN_STATE.
"""

from collections.abc import Container, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter

from odradek.api.request import Request
from odradek.api.services import Services, Timer
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.records.batch import TRANSACTIONAL, BatchHeader
from odradek.records.record import TimestampType
from odradek.records.validation import NotOneBatch, RejectedRecords, check_batch, prepare_batch
from odradek.replication.partition import Partition
from odradek.storage.log import Appended
from odradek.wire.produce import (
    TOPIC_IDS_SINCE,
    PartitionAnswer,
    ProduceRequest,
    TopicAnswer,
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


class Outcome(PartitionAnswer):
    """What becomes of one batch: the answer, and the offset that its acknowledgement waits for."""

    __slots__ = ("last_offset", "partition")

    def __init__(self, index: int, partition: Partition) -> None:
        super().__init__(index)
        self.log_start_offset = partition.log.log_start_offset
        self.partition = partition
        self.last_offset = -1

    def appended(self, result: Appended | KafkaError) -> None:
        if isinstance(result, KafkaError):
            self.refuse(result)
            return
        self.base_offset, self.last_offset, is_duplicate, timestamp = result
        rules = self.partition.rules
        if is_duplicate or rules.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            self.time_ms = timestamp

    def refuse(self, error: KafkaError) -> None:
        self.error_code = error.code
        self.error_message = error.message or None
        if error.code in TELL_NOTHING or isinstance(error, NotOneBatch):
            self.log_start_offset = -1
        if isinstance(error, RejectedRecords):
            self.record_errors = error.record_errors

    @property
    def is_committed(self) -> bool:
        return self.last_offset < self.partition.high_watermark

    def fail(self, error: ErrorCode) -> None:
        self.error_code = error
        self.base_offset = -1


class Production:
    """One request: what it asks for, what it is answered with, and what it waits for."""

    __slots__ = ("answers", "outcomes", "request", "timeout_ms", "wants")

    def __init__(self, request: Request, message: ProduceRequest) -> None:
        self.request = request
        self.timeout_ms = max(message.timeout_ms, 0)
        self.wants = message.acks
        self.answers: list[TopicAnswer] = []
        self.outcomes: list[Outcome] = []  # of the batches that were taken

    @property
    def waits_for(self) -> tuple[int, list[Partition]]:
        """Its timeout, and the partitions that have not committed its batches yet."""
        if self.wants != ALL:
            return 0, []
        return self.timeout_ms, [outcome.partition for outcome in self.outcomes if not outcome.is_committed]

    def send(self) -> None:
        request = self.request
        frame = encode_produce_response(request.version, request.correlation_id, self.answers)
        request.answer_parts((frame,))

    def finish_without_answer(self) -> str:
        """acks=0: the client hears of an error by losing its connection. Answers what went wrong, if anything."""
        codes = {
            answer.error_code for topic in self.answers for answer in topic.partitions if answer.error_code
        }
        self.request.answer_nothing()
        return ", ".join(sorted(ErrorCode(code).name for code in codes))


def handle_all(services: Services, run: Sequence[tuple[Request, ProduceRequest]]) -> None:
    appends = Appends(services)
    productions = [appends.add(request, message) for request, message in run]
    appends.write()
    failures = ""
    for waits_for, group in groupby(productions, attrgetter("waits_for")):
        timeout_ms, partitions = waits_for
        if partitions:
            Acknowledgement(list(group)).wait(services, timeout_ms)
            continue
        for production in group:
            if production.wants == 0:
                failures = failures or production.finish_without_answer()
            else:
                production.send()
    if failures:
        raise ProtocolError(f"Produce with acks=0 failed with {failures}")


class Appends:
    """The appends of a run of requests, gathered by partition."""

    __slots__ = ("_batches", "_now_ms", "_services")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._now_ms = services.now_ms()
        self._batches: dict[Partition, list[tuple[Outcome, tuple[memoryview, BatchHeader]]]] = {}

    def add(self, request: Request, message: ProduceRequest) -> Production:
        """Check all batches of a request; those that may be appended are written by `write`."""
        production = Production(request, message)
        for topic in message.topics:
            name: str | None = topic.name
            if request.version >= TOPIC_IDS_SINCE:
                name = self._services.topic_name(topic.topic_id)
            answers = [
                self._add(production, message, name, index, records) for index, records in topic.partitions
            ]
            production.answers.append(TopicAnswer(topic.name, topic.topic_id, answers))
        return production

    def _add(
        self,
        production: Production,
        message: ProduceRequest,
        topic: str | None,
        index: int,
        records: memoryview | None,
    ) -> PartitionAnswer:
        try:
            partition = self._partition(message.acks, topic, index)
        except KafkaError as error:
            return PartitionAnswer(index, error.code, error_message=error.message or None)
        outcome = Outcome(index, partition)
        try:
            is_transactional = message.transactional_id is not None
            batch = self._checked(partition, records, production.request.version, is_transactional)
        except KafkaError as error:
            outcome.refuse(error)
            return outcome
        production.outcomes.append(outcome)
        gathered = self._batches.get(partition)
        if gathered is None:
            self._batches[partition] = [(outcome, batch)]
        else:
            gathered.append((outcome, batch))
        return outcome

    def _partition(self, acks: int, topic: str | None, index: int) -> Partition:
        if acks not in (0, 1, ALL):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._services.replicas.get(topic, index)
        if acks == ALL:
            partition.check_enough_replicas()
        return partition

    def _checked(
        self, partition: Partition, batch: memoryview | None, version: int, is_transactional: bool
    ) -> tuple[memoryview, BatchHeader]:
        if not batch:
            raise NotOneBatch(ErrorCode.INVALID_RECORD, "a partition without records")
        if partition.closed_with:
            raise KafkaError(partition.closed_with)
        header = check_batch(batch, partition.rules.max_message_bytes, version)
        if is_transactional or header.attributes & TRANSACTIONAL:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "transactions are not supported")
        return prepare_batch(batch, header, partition.rules, self._now_ms)

    def write(self) -> None:
        for partition, gathered in self._batches.items():
            batches = [batch for _, batch in gathered]
            results = partition.log.append_all_as_leader(batches, partition.leader_epoch, self._now_ms)
            for (outcome, _), result in zip(gathered, results, strict=True):
                outcome.appended(result)
            self._services.appended(partition)


class Acknowledgement:
    """Answers that wait until all their batches are committed, or for their time to run out."""

    __slots__ = ("_productions", "_remaining", "_timer")

    def __init__(self, productions: list[Production]) -> None:
        self._productions = productions
        self._remaining: dict[Partition, int] = {}  # the offset that each one's high watermark has to reach
        self._timer: Timer | None = None

    def wait(self, services: Services, timeout_ms: int) -> None:
        remaining = self._remaining
        for production in self._productions:
            for outcome in production.outcomes:
                if not outcome.is_committed:
                    remaining[outcome.partition] = max(
                        remaining.get(outcome.partition, 0), outcome.last_offset + 1
                    )
        self._timer = services.deadlines.add(timeout_ms, self._time_out)
        for partition, offset in list(remaining.items()):
            partition.when_committed(offset, partial(self._committed, partition))

    def _committed(self, partition: Partition, error: ErrorCode) -> None:
        if self._remaining.pop(partition, None) is None:
            return
        if error:
            self._fail_uncommitted([partition], error)
        if not self._remaining:
            self._send()

    def _time_out(self) -> None:
        self._fail_uncommitted(self._remaining, ErrorCode.REQUEST_TIMED_OUT)
        self._remaining = {}
        self._send()

    def _fail_uncommitted(self, partitions: Container[Partition], error: ErrorCode) -> None:
        for production in self._productions:
            for outcome in production.outcomes:
                if outcome.partition in partitions and not outcome.is_committed:
                    outcome.fail(error)

    def _send(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        for production in self._productions:
            production.send()
