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
- NOT_LEADER_OR_FOLLOWER comes with the leader and its address (KIP-951, version 10 on), unless the partition moved
  while its batch was being checked.
- The first batch of a transaction in a partition needs the word of its coordinator (`services.verification`). One on
  this broker mostly gives it at once; else the requests that arrived together wait for it, and later ones on the
  connection with them. Further batches of the transaction need no question.
"""

import asyncio
from collections.abc import Awaitable, Container, Coroutine, Sequence
from functools import partial
from itertools import groupby, islice
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
from odradek.requests.leader_hints import leader_hint
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
HINTS_SINCE = 10
MANY_PARTITIONS = 200  # more are appended in several turns of the event loop
A_FEW_PARTITIONS = 10  # are appended without a pause even so
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
Answer = list[Verification | KafkaError]  # of a coordinator, to first batches of a transaction


def handle_all(services: Services, run: Run) -> Coroutine[Any, Any, None] | None:
    """Returns the remaining work if a coordinator has to be waited for, or if one of the requests takes long: that one,
    and all after it."""
    appends = Appends(services)
    productions: list[Production] = []
    for request, message in run:
        try:
            productions.append(appends.add(request, message))
        except TakesLong:
            break
    rest = [(request, _copy(message)) for request, message in run[len(productions) :]]
    if appends.first_batches and (answers := appends.verify()) is not None:
        appends.keep()
        return _write_when_verified(services, appends, answers, productions, rest)
    appends.write()
    _answer(services, productions)
    return handle_in_turns(services, rest) if rest else None


async def _write_when_verified(
    services: Services,
    appends: "Appends",
    answers: Awaitable[None],
    productions: Sequence[Production],
    rest: Run,
) -> None:
    await answers
    appends.write()
    _answer(services, productions)
    await handle_in_turns(services, rest)


async def handle_in_turns(services: Services, run: Run) -> None:
    """One after the other, a few batches in each turn of the event loop."""
    for request, message in run:
        production = await _append_in_turns(services, request, message)
        _answer(services, [production])
        if request.unfinished is not None:
            await request.unfinished


async def _append_in_turns(services: Services, request: Request, message: ProduceRequest) -> Production:
    """A batch is written as soon as it is checked, but those of a transaction that begins once all are verified."""
    production = Production(request, message)
    refusal = _refusal_of(message)
    if refusal is not None:
        _refuse_all(production, message, refusal)
        return production
    appends = Appends(services)
    pace = services.turns.pace()
    for topic in message.topics:
        name = appends.name_of(topic)
        answers: list[ProducedPartition] = []
        production.answers.append(ProducedTopic(topic.name, topic.topic_id, answers))
        for index, records in topic.partitions:
            answers.append(await appends.add_in_turns(production, message, name, index, records))
            if not appends.first_batches:
                appends.write()
            await pace.step()
    if appends.first_batches and (verified := appends.verify()) is not None:
        await verified
    while appends.write(most=A_FEW_PARTITIONS):
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


def _refusal_of(message: ProduceRequest) -> KafkaError | None:
    """Why the whole request is refused, whatever is in its partitions."""
    producers = {
        (header.producer_id, header.producer_epoch)
        for topic in message.topics
        for _, records in topic.partitions
        if records
        and len(records) >= HEADER_SIZE
        and (header := read_header(records)).attributes & TRANSACTIONAL
    }
    if producers and message.transactional_id is None:
        return KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if len(producers) > 1:
        reason = "Transactional records contained more than one producer ID"
        return KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, reason)
    return None


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
    """The appends of a run of requests, gathered by partition. Those that begin a transaction are verified before they
    are written."""

    __slots__ = ("_batches", "_now_ms", "_services", "_verified", "first_batches")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._now_ms = services.now_ms()
        self._batches: dict[Leader, list[tuple[BatchAnswer, tuple[memoryview, BatchHeader]]]] = {}
        self.first_batches: list[tuple[Production, FirstBatch]] = []  # that begin a transaction, unverified
        # What they are written with, or why not: by partition, producer id and producer epoch.
        self._verified: dict[tuple[Leader, int, int], Verification | KafkaError] = {}

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
        self.first_batches = [each for each in self.first_batches if each[0] is not production]
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
            refused = ProducedPartition(index, error.code, error_message=error.message or None)
            _maybe_hint(self._services, production.request, topic, refused)
            return refused
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
            raise TakesLong  # the whole request is refused: see `_refusal_of`
        if not leader.log.producers.has_open_transaction(*producer):
            self.first_batches.append((production, FirstBatch(leader, *producer, header.base_sequence)))

    # --- verification ---

    def verify(self) -> Coroutine[Any, Any, None] | None:
        """Ask the coordinators about all batches that begin a transaction. Returns what has to be awaited, unless all
        of them have answered at once."""
        questions: dict[tuple[int, str, tuple[int, int]], list[FirstBatch]] = {}
        for production, batch in self.first_batches:
            name = production.transactional_id
            assert name is not None
            questions.setdefault((production.request.version, name, production.producer), []).append(batch)
        self.first_batches = []
        late: list[tuple[list[FirstBatch], Awaitable[Answer]]] = []
        for (version, name, _), batches in questions.items():
            answer = self._services.verification.verify(version, name, batches)
            if isinstance(answer, list):
                self._heard(batches, answer)
            else:
                late.append((batches, answer))
        return self._hear(late) if late else None

    async def _hear(self, late: Sequence[tuple[list[FirstBatch], Awaitable[Answer]]]) -> None:
        answers = await asyncio.gather(*(answer for _, answer in late))
        for (batches, _), answer in zip(late, answers, strict=True):
            self._heard(batches, answer)

    def _heard(self, batches: list[FirstBatch], answer: Answer) -> None:
        for (leader, producer_id, producer_epoch, _), verified in zip(batches, answer, strict=True):
            self._verified[leader, producer_id, producer_epoch] = verified

    def keep(self) -> None:
        """The memory of the frames is about to be overwritten."""
        for gathered in self._batches.values():
            gathered[:] = [
                (answer, (memoryview(bytearray(batch)), header)) for answer, (batch, header) in gathered
            ]

    # --- writing ---

    def write(self, most: int | None = None) -> bool:
        """All that was gathered, or that for a few partitions. False if there was nothing."""
        leaders = list(islice(self._batches, most))
        for leader in leaders:
            gathered = self._batches.pop(leader)
            batches = [batch for _, batch in gathered]
            if self._verified:
                results = [self._append_verified(leader, *batch) for batch in batches]
            else:
                results = leader.append_all(batches, self._now_ms)
            for (answer, _), result in zip(gathered, results, strict=True):
                answer.appended(result)
        return bool(leaders)

    def _append_verified(
        self, leader: Leader, batch: memoryview, header: BatchHeader
    ) -> AppendResult | KafkaError:
        """With what the log asks for where a transaction begins."""
        producer = header.producer_id, header.producer_epoch
        verified = self._verified.get((leader, *producer))
        if isinstance(verified, KafkaError):
            if not leader.log.producers.has_open_transaction(*producer):
                return NotVerified(verified.code, verified.message)
            verified = None  # another request has begun it meanwhile
        try:
            return leader.append(batch, header, self._now_ms, verification=verified)
        except KafkaError as error:
            return error


def _maybe_hint(services: Services, request: Request, topic: str | None, answer: ProducedPartition) -> None:
    """If another broker leads the partition, say which."""
    if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and request.version >= HINTS_SINCE and topic:
        answer.leader_hint = leader_hint(services, request, topic, answer.index)


class Acknowledgement:
    """Responses that wait until all their batches are committed, or until they time out."""

    __slots__ = ("_productions", "_remaining", "_services", "_timer")

    def __init__(self, productions: list[Production]) -> None:
        self._productions = productions
        self._remaining: dict[Leader, int] = {}  # the offset that each one's high watermark has to reach
        self._timer: Timer | None = None

    def __str__(self) -> str:
        """What it waits for, for the log if it is slow."""
        names = [str(leader.topic_partition) for leader in self._remaining]
        return f"{count_of(len(names), 'partition')} to commit its records: {some(names)}"

    def wait(self, services: Services, timeout_ms: int) -> None:
        self._services = services
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
                    topic = answer.leader.topic_partition.topic
                    _maybe_hint(self._services, production.request, topic, answer)

    def _send(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        for production in self._productions:
            production.send()
