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
- Internal topics are for coordinators only: INVALID_TOPIC_EXCEPTION.
- The first batch of a transaction in a partition waits for its coordinator (`services.verification`), and later
  requests on the connection wait with it. Further batches of the transaction need no question.
"""

import asyncio
from collections.abc import Container, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.host.interface import Timer
from odradek.model import INTERNAL_TOPICS
from odradek.net.transport import Part
from odradek.records.batch import HEADER_SIZE, NO_PRODUCER_ID, TRANSACTIONAL, BatchHeader, read_header
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
from odradek.requests.refused import (
    log_refusal,
    log_refused_batch,
    log_refused_partition,
    log_timed_out,
    subject_of,
)
from odradek.requests.request import Request
from odradek.requests.services import FirstBatch, Services
from odradek.storage.log.run import AppendResult
from odradek.storage.producers.verification import Verification
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


class BeginsTransaction(TakesLong):
    """A batch whose transaction is not open in its partition, or that must not be in this request."""


class NotVerified(KafkaError):
    """The coordinator of the transaction said no: refused before the log is looked at."""


class BatchAnswer(ProducedPartition):
    """The result of one batch: the response, and the offset that its acknowledgement waits for."""

    __slots__ = ("last_offset", "leader")

    def __init__(self, index: int, leader: Leader) -> None:
        ProducedPartition.__init__(self, index, log_start_offset=leader.log.log_start_offset)
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
        if error.code in TELL_NOTHING or isinstance(error, NotOneBatch | NotVerified):
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

    __slots__ = ("answers", "batches", "producer", "request", "timeout_ms", "transactional_id", "wants")

    def __init__(self, request: Request, message: ProduceRequest) -> None:
        self.request = request
        self.timeout_ms = max(message.timeout_ms, 0)
        self.wants = message.acks
        self.transactional_id = message.transactional_id
        self.producer = NO_PRODUCER_ID, -1  # id and epoch of the transactional batches
        self.answers: list[ProducedTopic] = []
        self.batches: list[BatchAnswer] = []  # of the batches that were taken

    @property
    def waits_for(self) -> tuple[int, list[Leader]]:
        """Its timeout, and the partitions that have not committed its batches yet."""
        if self.wants != ALL:
            return 0, []
        return self.timeout_ms, [
            answer.leader for answer in self.batches if answer.last_offset >= answer.leader.high_watermark
        ]

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
TransactionalBatch = tuple[TopicBatches, int, BatchHeader]  # its topic, and the index of its partition
# Where a transaction begins, once its coordinator was asked: by partition, producer id and producer epoch.
Verified = Mapping[tuple[Leader, int, int], Verification | KafkaError]
NOTHING_VERIFIED: Verified = {}


def handle_all(services: Services, run: Run) -> Coroutine[Any, Any, None] | None:
    """Returns the remaining work if one of the requests takes long: that one, and all after it."""
    if _begins_transaction(services, run[0][1]):
        return _begin_transactions(services, [(request, _copy(message)) for request, message in run])
    count, reason = _handle_together(services, run)
    if reason is None:
        return None
    rest = [(request, _copy(message)) for request, message in run[count:]]
    if isinstance(reason, BeginsTransaction):
        return _begin_transactions(services, rest)
    return handle_in_turns(services, rest)


def _handle_together(
    services: Services, run: Run, verified: Verified = NOTHING_VERIFIED
) -> tuple[int, TakesLong | None]:
    """Up to the first request that takes long. Returns how many these are, and why that one does."""
    appends = Appends(services, verified)
    productions: list[Production] = []
    reason: TakesLong | None = None
    for request, message in run:
        try:
            productions.append(appends.add(request, message))
        except TakesLong as takes_long:
            reason = takes_long
            break
    appends.write()
    _answer(services, productions)
    return len(productions), reason


async def _begin_transactions(services: Services, run: Run) -> None:
    """All requests of a run are asked about at once, and then handled together as far as that goes."""
    verified = await _verify(services, run)
    while run:
        count, reason = _handle_together(services, run, verified)
        run = run[count:]
        if reason is not None:
            await handle_in_turns(services, run[:1])
            run = run[1:]


async def handle_in_turns(services: Services, run: Run) -> None:
    """One after the other, a few batches in each turn of the event loop."""
    for request, message in run:
        production = await _append_in_turns(services, request, message)
        _answer(services, [production])
        if request.unfinished is not None:
            await request.unfinished


async def _append_in_turns(services: Services, request: Request, message: ProduceRequest) -> Production:
    """A batch is written as soon as it is checked: in the next turn its partition may be gone."""
    production = Production(request, message)
    refusal = _refusal_of(message, _transactional_batches(message))
    if refusal is not None:
        _refuse_all(production, message, refusal)
        return production
    appends = Appends(services, await _verify(services, [(request, message)]))
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


def _refuse_all(production: Production, message: ProduceRequest, error: KafkaError) -> None:
    log_refusal(production.request, subject_of(production.request), error.code, error.message)
    for topic in message.topics:
        refused = [
            ProducedPartition(index, error.code, error_message=error.message or None)
            for index, _ in topic.partitions
        ]
        production.answers.append(ProducedTopic(topic.name, topic.topic_id, refused))


def _refusal_of(message: ProduceRequest, batches: Sequence[TransactionalBatch]) -> KafkaError | None:
    """Why the whole request is refused, whatever is in its partitions."""
    producers = {(header.producer_id, header.producer_epoch) for _, _, header in batches}
    if producers and message.transactional_id is None:
        return KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if len(producers) > 1:
        reason = "Transactional records contained more than one producer ID"
        return KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, reason)
    return None


async def _verify(services: Services, run: Run) -> Verified:
    """Ask the coordinators about all batches of a run that begin a transaction."""
    questions: dict[tuple[int, str, int, int], list[FirstBatch]] = {}
    for request, message in run:
        if message.transactional_id is None:
            continue
        batches = _transactional_batches(message)
        if _refusal_of(message, batches) is None:
            for batch in _first_batches(services, batches):
                question = request.version, message.transactional_id, batch.producer_id, batch.producer_epoch
                questions.setdefault(question, []).append(batch)
    if not questions:
        return NOTHING_VERIFIED
    verify = services.verification.verify
    asked = [verify(version, name, batches) for (version, name, _, _), batches in questions.items()]
    answers = [await asked[0]] if len(asked) == 1 else await asyncio.gather(*asked)
    return {
        (batch.leader, batch.producer_id, batch.producer_epoch): result
        for batches, results in zip(questions.values(), answers, strict=True)
        for batch, result in zip(batches, results, strict=True)
    }


def _begins_transaction(services: Services, message: ProduceRequest) -> bool:
    """As the first request of a run mostly does, if it is transactional: then it is verified before it is tried."""
    if message.transactional_id is None or _has_many_partitions(message):
        return False
    return next(_first_batches(services, _transactional_batches(message)), None) is not None


def _has_many_partitions(message: ProduceRequest) -> bool:
    topics = message.topics
    return len(topics) > MANY_PARTITIONS or any(len(topic.partitions) > MANY_PARTITIONS for topic in topics)


def _first_batches(services: Services, batches: Iterable[TransactionalBatch]) -> Iterator[FirstBatch]:
    for topic, index, header in batches:
        name = topic.name or services.topic_name(topic.topic_id)
        if name is None or name in INTERNAL_TOPICS:
            continue
        try:
            leader = services.replicas.leader(name, index)
        except KafkaError:
            continue  # which is told to the client when the batch would be appended
        producer_id, epoch = header.producer_id, header.producer_epoch
        if not leader.log.producers.has_open_transaction(producer_id, epoch):
            yield FirstBatch(leader, producer_id, epoch, header.base_sequence)


def _transactional_batches(message: ProduceRequest) -> list[TransactionalBatch]:
    """The headers of all transactional batches, some of which may still turn out to be none."""
    return [
        (topic, index, header)
        for topic in message.topics
        for index, records in topic.partitions
        if records
        and len(records) >= HEADER_SIZE
        and (header := read_header(records)).attributes & TRANSACTIONAL
    ]


def _copy(message: ProduceRequest) -> ProduceRequest:
    """With its own memory: that of the frame is about to be overwritten."""
    topics = [
        TopicBatches(name, topic_id, [(index, _copied(records)) for index, records in partitions])
        for name, topic_id, partitions in message.topics
    ]
    return ProduceRequest(message.transactional_id, message.acks, message.timeout_ms, topics)


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

    __slots__ = ("_batches", "_now_ms", "_services", "_verified")

    def __init__(self, services: Services, verified: Verified) -> None:
        self._services = services
        self._now_ms = services.now_ms()
        self._batches: dict[Leader, list[tuple[BatchAnswer, tuple[memoryview, BatchHeader]]]] = {}
        self._verified = verified

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
        except BeginsTransaction:  # it was open when the coordinators were asked
            error = KafkaError(ErrorCode.INVALID_TXN_STATE, "The transaction has ended")
            log_refused_partition(production.request, topic, index, error)
            return ProducedPartition(index, error.code, error_message=error.message)
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
            if message.acks == ALL and not leader.has_enough_replicas:
                leader.check_enough_replicas()
            batch = self._checked(leader, records, production)
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
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")
        return self._services.replicas.leader(topic, index)

    def _checked(
        self, leader: Leader, batch: memoryview | None, production: Production
    ) -> tuple[memoryview, BatchHeader]:
        if not batch:
            raise NotOneBatch(ErrorCode.INVALID_RECORD, "a partition without records")
        rules = leader.settings.rules
        header = check_batch(batch, rules.max_message_bytes, production.request.version)
        if header.attributes & TRANSACTIONAL:
            self._check_transaction(leader, header, production)
        try:
            return prepare_batch(batch, header, rules, self._now_ms)
        except TakesLong:
            raise ManyRecords(leader, batch, header) from None

    def _check_transaction(self, leader: Leader, header: BatchHeader, production: Production) -> None:
        """The log checks this again when it is appended to; here it is found out who has to be asked."""
        producer = header.producer_id, header.producer_epoch
        if production.producer[0] == NO_PRODUCER_ID:
            production.producer = producer
        if production.producer != producer or production.transactional_id is None:
            raise BeginsTransaction
        if not leader.log.producers.has_open_transaction(*producer):
            verified = self._verified.get((leader, *producer))
            if verified is None:
                raise BeginsTransaction
            if isinstance(verified, KafkaError):
                raise NotVerified(verified.code, verified.message)

    def write(self) -> None:
        batches_by_leader, self._batches = self._batches, {}
        for leader, gathered in batches_by_leader.items():
            batches = [batch for _, batch in gathered]
            if self._verified:
                results = [self._append_verified(leader, *batch) for batch in batches]
            else:
                results = leader.append_all(batches, self._now_ms)
            for (answer, _), result in zip(gathered, results, strict=True):
                answer.appended(result)

    def _append_verified(
        self, leader: Leader, batch: memoryview, header: BatchHeader
    ) -> AppendResult | KafkaError:
        """With what the log asks for where a transaction begins."""
        verified = self._verified.get((leader, header.producer_id, header.producer_epoch))
        verification = verified if isinstance(verified, Verification) else None
        try:
            return leader.append(batch, header, self._now_ms, verification=verification)
        except KafkaError as error:
            return error


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
                leader, last_offset = answer.leader, answer.last_offset
                if last_offset >= leader.high_watermark and last_offset >= remaining.get(leader, 0):
                    remaining[leader] = last_offset + 1
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
