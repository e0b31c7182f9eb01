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
- While the disk is full (`services.disk_watch`) everything is refused with KAFKA_STORAGE_ERROR, at which clients look
  for another leader.
- A batch that was appended before (idempotent producer) is answered with its first offset.
- Internal topics are for coordinators only: INVALID_TOPIC_EXCEPTION.
- NOT_LEADER_OR_FOLLOWER comes with the leader and its address (KIP-951, version 10 on), unless the partition moved
  while its batch was being checked.
- The first batch of a transaction in a partition needs the word of its coordinator (`services.verification`). One on
  this broker mostly gives it at once; else the requests that arrived together wait for it, and later ones on the
  connection with them. Further batches of the transaction need no question.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from itertools import groupby, islice
from operator import attrgetter
from typing import Any

from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.model import INTERNAL_TOPICS
from odradek.records.batch import HEADER_SIZE, NO_PRODUCER_ID, TRANSACTIONAL, BatchHeader, read_header
from odradek.records.record import uncompressed_records
from odradek.records.validation import (
    NotOneBatch,
    Prepared,
    TakesLong,
    check_batch,
    check_records,
    finish_records,
    prepare_batch,
)
from odradek.replication.leader import Leader
from odradek.requests.production import (
    ALL,
    MANY_PARTITIONS,
    Acknowledgement,
    BatchAnswer,
    NotVerified,
    Production,
    maybe_hint,
)
from odradek.requests.request import Request
from odradek.requests.services import FirstBatch, Services
from odradek.storage.log.run import AppendResult
from odradek.storage.producers.verification import Verification
from odradek.wire.produce import (
    TOPIC_IDS_SINCE,
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    TopicBatches,
)

A_FEW_PARTITIONS = 10  # are appended without a pause even so


class ManyRecords(TakesLong):
    """A batch with many records to check."""

    def __init__(self, leader: Leader, batch: memoryview, header: BatchHeader) -> None:
        self.leader = leader
        self.batch = batch
        self.header = header


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
    production.request.refused("", error.code, error.message)
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
                production.refused(topic, index, error)
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
            production.refused(topic, index, error)
            refused = ProducedPartition(index, error.code, error_message=error.message or None)
            maybe_hint(self._services, production.request, topic, refused)
            return refused
        answer = BatchAnswer(index, leader)
        try:
            if message.acks == ALL and not leader.has_enough_replicas:
                leader.check_enough_replicas()
            if self._services.disk.is_full and self._services.disk.keeps_its_rest:
                raise self._services.disk.refusal()
            batch = self._checked(leader, records, production)
        except KafkaError as error:
            production.refused(topic, index, error)
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
                if answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR and isinstance(result, KafkaError):
                    self._services.disk.write_failed(result)
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
