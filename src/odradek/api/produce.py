"""Produce (0): append a batch to each partition named.

- Batches are checked by header and CRC, given their offset in place, and written unchanged; records are
  decoded only if the topic's settings need it (see `records.validation`).
- Requests that arrived together, in one read from a connection, are handled together: their batches for a
  partition are one write, and those that wait for the same partitions wait as one. A request that came alone is a
  run of one.
- A request that takes long (many partitions, many megabytes, many records that a rule of the topic must check) is
  handled in several turns of the event loop, separately.
- acks=0 gets no response, and an error then closes the connection; acks=1 gets its response once written; acks=all
  once committed, which includes being on disk (see `replication.leader`), or at the request's timeout with
  REQUEST_TIMED_OUT.
- acks=all with too small an ISR is refused with NOT_ENOUGH_REPLICAS before anything is written. If the ISR becomes too
  small afterwards, nothing more is committed, and the request waits for its timeout. (Kafka has
  NOT_ENOUGH_REPLICAS_AFTER_APPEND for an ISR that shrinks between the commit and the response: here that is one step.)
- A batch that was appended before (idempotent producer) is answered with its first offset.

Left out: transactions. A transactional Produce is refused with INVALID_TXN_STATE.
"""

from collections.abc import Container, Coroutine, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.host.interface import Timer
from odradek.net.transport import Part
from odradek.records.batch import TRANSACTIONAL, BatchHeader
from odradek.records.record import TimestampType, uncompressed_records
from odradek.records.validation import (
    NotOneBatch,
    Prepared,
    RejectedRecords,
    TakesLong,
    check_batch,
    check_records,
    finish_records,
    prepare_batch,
)
from odradek.replication.leader import Leader
from odradek.requests.refused import log_refused_batch, log_refused_partition, log_timed_out
from odradek.requests.request import Request
from odradek.requests.services import Services
from odradek.storage.log.run import AppendResult
from odradek.wire.codec import Steps
from odradek.wire.produce import (
    TOPIC_IDS_SINCE,
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    TopicBatches,
    encode_answers_in_steps,
    encode_produce_response,
)
from odradek.wording import count_of, some

ALL = -1
MANY_PARTITIONS = 200  # more are appended in several turns of the event loop
# Refusals that do not say where the log starts.
TELL_NOTHING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_REQUIRED_ACKS,
    }
)


class ManyRecords(TakesLong):
    """A batch with many records to check."""

    def __init__(self, leader: Leader, batch: memoryview, header: BatchHeader) -> None:
        self.leader = leader
        self.batch = batch
        self.header = header


class BatchAnswer(ProducedPartition):
    """The result of one batch: the response, and the offset that its acknowledgement waits for."""

    __slots__ = ("last_offset", "leader")

    def __init__(self, index: int, leader: Leader) -> None:
        super().__init__(index)
        self.log_start_offset = leader.log.log_start_offset
        self.leader = leader
        self.last_offset = -1

    def appended(self, result: AppendResult | KafkaError) -> None:
        if isinstance(result, KafkaError):
            log_refused_batch(self.leader.topic_partition, result)
            self.refuse(result)
            return
        self.base_offset, self.last_offset, is_duplicate, timestamp = result
        rules = self.leader.settings.rules
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
        return self.last_offset < self.leader.high_watermark

    def fail(self, error: ErrorCode) -> None:
        """It was appended, and is not known to be committed: as in Kafka, the answer says where it is all the same."""
        self.error_code = error


class Production:
    """One request: its batches, its response, and what it waits for."""

    __slots__ = ("answers", "batches", "request", "timeout_ms", "wants")

    def __init__(self, request: Request, message: ProduceRequest) -> None:
        self.request = request
        self.timeout_ms = max(message.timeout_ms, 0)
        self.wants = message.acks
        self.answers: list[ProducedTopic] = []
        self.batches: list[BatchAnswer] = []  # of the batches that were taken

    @property
    def waits_for(self) -> tuple[int, list[Leader]]:
        """Its timeout, and the partitions that have not committed its batches yet."""
        if self.wants != ALL:
            return 0, []
        return self.timeout_ms, [answer.leader for answer in self.batches if not answer.is_committed]

    def send(self) -> None:
        request = self.request
        if len(self.answers) > MANY_PARTITIONS or len(self.batches) > MANY_PARTITIONS:
            request.answer_in_steps(self._encode())
            return
        frame = encode_produce_response(request.version, request.correlation_id, self.answers)
        request.answer_parts((frame,))

    def _encode(self) -> Steps[Sequence[Part]]:
        request = self.request
        frame = yield from encode_answers_in_steps(request.version, request.correlation_id, self.answers)
        return (frame,)

    def finish_without_answer(self) -> str:
        """acks=0: an error closes the client's connection. Returns the errors, if any."""
        codes = {
            answer.error_code for topic in self.answers for answer in topic.partitions if answer.error_code
        }
        self.request.answer_nothing()
        return ", ".join(sorted(ErrorCode(code).name for code in codes))


Run = Sequence[tuple[Request, ProduceRequest]]


def handle_all(services: Services, run: Run) -> Coroutine[Any, Any, None] | None:
    """Returns the remaining work if one of the requests takes long: that one, and all after it."""
    appends = Appends(services)
    productions: list[Production] = []
    rest: Run = ()
    for request, message in run:
        try:
            productions.append(appends.add(request, message))
        except TakesLong:
            rest = run[len(productions) :]
            break
    appends.write()
    _answer(services, productions)
    if rest:
        return handle_in_turns(services, [(request, _copy(message)) for request, message in rest])
    return None


async def handle_in_turns(services: Services, run: Run) -> None:
    """One after the other, a few batches in each turn of the event loop."""
    for request, message in run:
        production = await _append_in_turns(services, request, message)
        _answer(services, [production])
        if request.unfinished is not None:
            await request.unfinished


async def _append_in_turns(services: Services, request: Request, message: ProduceRequest) -> Production:
    """A batch is written as soon as it is checked: in the next turn its partition may be gone."""
    appends = Appends(services)
    production = Production(request, message)
    pace = services.turns.pace()
    for topic in message.topics:
        name = appends.name_of(topic)
        answers: list[ProducedPartition] = []
        production.answers.append(ProducedTopic(topic.name, topic.topic_id, answers))
        for index, records in topic.partitions:
            answers.append(await appends.add_in_turns(production, message, name, index, records))
            appends.write()
            await pace.step()
    return production


def _copy(message: ProduceRequest) -> ProduceRequest:
    """With its own memory: that of the frame is about to be overwritten."""
    topics = [
        topic._replace(partitions=[(index, _copied(records)) for index, records in topic.partitions])
        for topic in message.topics
    ]
    return message._replace(topics=topics)


def _copied(records: memoryview | None) -> memoryview | None:
    return None if records is None else memoryview(bytearray(records))


def _answer(services: Services, productions: Sequence[Production]) -> None:
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
        self._batches: dict[Leader, list[tuple[BatchAnswer, tuple[memoryview, BatchHeader]]]] = {}

    def add(self, request: Request, message: ProduceRequest) -> Production:
        """Check all batches of a request; those that may be appended are written by `write`."""
        production = Production(request, message)
        if len(message.topics) > MANY_PARTITIONS:
            raise TakesLong
        try:
            for topic in message.topics:
                if len(topic.partitions) > MANY_PARTITIONS:
                    raise TakesLong
                name: str | None = topic.name
                if request.version >= TOPIC_IDS_SINCE:
                    name = self.name_of(topic)
                answers = [
                    self._add(production, message, name, index, records)
                    for index, records in topic.partitions
                ]
                production.answers.append(ProducedTopic(topic.name, topic.topic_id, answers))
        except TakesLong:
            self._take_back(production)
            raise
        return production

    def name_of(self, topic: TopicBatches) -> str | None:
        return topic.name or self._services.topic_name(topic.topic_id)

    def _take_back(self, production: Production) -> None:
        """Its batches were the last ones gathered for their partitions."""
        for answer in production.batches:
            gathered = self._batches[answer.leader]
            gathered.pop()
            if not gathered:
                del self._batches[answer.leader]

    async def add_in_turns(
        self,
        production: Production,
        message: ProduceRequest,
        topic: str | None,
        index: int,
        records: memoryview | None,
    ) -> ProducedPartition:
        """As `add`, of one partition, however many records have to be looked at."""
        try:
            return self._add(production, message, topic, index, records)
        except ManyRecords as many:
            answer = BatchAnswer(index, many.leader)
            try:
                batch = await self._prepare_in_turns(many)
            except KafkaError as error:
                log_refused_partition(production.request, topic, index, error)
                answer.refuse(error)
            else:
                production.batches.append(answer)
                self._batches.setdefault(many.leader, []).append((answer, batch))
            return answer

    async def _prepare_in_turns(self, many: "ManyRecords") -> Prepared:
        """The codecs work in a thread, and do not block the event loop."""
        leader, batch, header = many.leader, many.batch, many.header
        rules, now_ms, turns = leader.settings.rules, self._now_ms, self._services.turns
        in_thread = self._services.host.in_thread
        data = await in_thread(uncompressed_records, batch, header)
        max_timestamp = await turns.complete(check_records(data, header, rules, now_ms))
        prepared = await in_thread(finish_records, batch, header, rules, data, max_timestamp, now_ms)
        if leader.closed_with:
            raise KafkaError(leader.closed_with)
        return prepared

    def _add(
        self,
        production: Production,
        message: ProduceRequest,
        topic: str | None,
        index: int,
        records: memoryview | None,
    ) -> ProducedPartition:
        try:
            leader = self._leader(message.acks, topic, index)
        except KafkaError as error:
            log_refused_partition(production.request, topic, index, error)
            return ProducedPartition(index, error.code, error_message=error.message or None)
        answer = BatchAnswer(index, leader)
        try:
            if message.acks == ALL:
                leader.check_enough_replicas()
            is_transactional = message.transactional_id is not None
            batch = self._checked(leader, records, production.request.version, is_transactional)
        except KafkaError as error:
            log_refused_partition(production.request, topic, index, error)
            answer.refuse(error)
            return answer
        production.batches.append(answer)
        gathered = self._batches.get(leader)
        if gathered is None:
            self._batches[leader] = [(answer, batch)]
        else:
            gathered.append((answer, batch))
        return answer

    def _leader(self, acks: int, topic: str | None, index: int) -> Leader:
        if acks not in (0, 1, ALL):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self._services.replicas.leader(topic, index)

    def _checked(
        self, leader: Leader, batch: memoryview | None, version: int, is_transactional: bool
    ) -> tuple[memoryview, BatchHeader]:
        if not batch:
            raise NotOneBatch(ErrorCode.INVALID_RECORD, "a partition without records")
        rules = leader.settings.rules
        header = check_batch(batch, rules.max_message_bytes, version)
        if is_transactional or header.attributes & TRANSACTIONAL:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "transactions are not supported")
        try:
            return prepare_batch(batch, header, rules, self._now_ms)
        except TakesLong:
            raise ManyRecords(leader, batch, header) from None

    def write(self) -> None:
        batches_by_leader, self._batches = self._batches, {}
        for leader, gathered in batches_by_leader.items():
            batches = [batch for _, batch in gathered]
            results = leader.append_all(batches, self._now_ms)
            for (answer, _), result in zip(gathered, results, strict=True):
                answer.appended(result)


class Acknowledgement:
    """Responses that wait until all their batches are committed, or until they time out."""

    __slots__ = ("_productions", "_remaining", "_timer")

    def __init__(self, productions: list[Production]) -> None:
        self._productions = productions
        self._remaining: dict[Leader, int] = {}  # the offset that each one's high watermark has to reach
        self._timer: Timer | None = None

    def __str__(self) -> str:
        """What it waits for, for the log if it is slow."""
        names = [str(leader.topic_partition) for leader in self._remaining]
        return f"{count_of(len(names), 'partition')} to commit its records: {some(names)}"

    def wait(self, services: Services, timeout_ms: int) -> None:
        remaining = self._remaining
        for production in self._productions:
            production.request.subject = self
            for answer in production.batches:
                if not answer.is_committed:
                    remaining[answer.leader] = max(remaining.get(answer.leader, 0), answer.last_offset + 1)
        self._timer = services.deadlines.add(timeout_ms, self._time_out)
        for leader, offset in list(remaining.items()):
            leader.when_committed(offset, partial(self._committed, leader))

    def _committed(self, leader: Leader, error: ErrorCode) -> None:
        if self._remaining.pop(leader, None) is None:
            return
        if error:
            self._fail_uncommitted([leader], error)
        if not self._remaining:
            self._send()

    def _time_out(self) -> None:
        for production in self._productions:
            uncommitted = [leader.topic_partition for leader in production.waits_for[1]]
            log_timed_out(production.request, uncommitted, production.timeout_ms)
        self._fail_uncommitted(self._remaining, ErrorCode.REQUEST_TIMED_OUT)
        self._remaining = {}
        self._send()

    def _fail_uncommitted(self, leaders: Container[Leader], error: ErrorCode) -> None:
        for production in self._productions:
            for answer in production.batches:
                if answer.leader in leaders and not answer.is_committed:
                    answer.fail(error)

    def _send(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        for production in self._productions:
            production.send()
