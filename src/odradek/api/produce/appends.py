"""The batches of a run of Produce requests: checked one by one, verified if they begin a transaction, and written by
partition."""

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from itertools import islice
from typing import Any

from odradek.api.produce.production import (
    ALL,
    MANY_PARTITIONS,
    BatchResponse,
    NotVerified,
    ProduceParts,
    Production,
    maybe_hint,
)
from odradek.apis.row import Resource
from odradek.errors import ErrorCode, KafkaError
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
from odradek.serving.coordination import FirstBatch
from odradek.serving.request import Request
from odradek.storage.log.run import AppendResult
from odradek.storage.producers.verification import Verification
from odradek.wire.produce import (
    TOPIC_IDS_SINCE,
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    TopicBatches,
)

Response = list[Verification | KafkaError]  # of a coordinator, to first batches of a transaction


class ManyRecords(TakesLong):
    """A batch with many records to check."""

    def __init__(self, leader: Leader, batch: memoryview, header: BatchHeader) -> None:
        self.leader = leader
        self.batch = batch
        self.header = header


class Appends:
    """The appends of a run of requests, gathered by partition. Those that begin a transaction are verified before they
    are written."""

    __slots__ = ("_batches", "_now_ms", "_parts", "_verified", "first_batches")

    def __init__(self, parts: ProduceParts) -> None:
        self._parts = parts
        self._now_ms = parts.now_ms()
        self._batches: dict[Leader, list[tuple[BatchResponse, tuple[memoryview, BatchHeader]]]] = {}
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
                responses = [
                    self._add(production, message, name, index, records)
                    for index, records in topic.partitions
                ]
                production.responses.append(ProducedTopic(topic.name, topic.topic_id, responses))
        except TakesLong:
            self._take_back(production)
            raise
        return production

    def name_of(self, topic: TopicBatches) -> str | None:
        return topic.name or self._parts.cluster.topic_name(topic.topic_id)

    def _take_back(self, production: Production) -> None:
        """Its batches were the last ones gathered for their partitions."""
        self.first_batches = [each for each in self.first_batches if each[0] is not production]
        for response in production.batches:
            gathered = self._batches[response.leader]
            gathered.pop()
            if not gathered:
                del self._batches[response.leader]

    async def add_in_turns(
        self,
        production: Production,
        message: ProduceRequest,
        topic: str | None,
        index: int,
        records: memoryview | None,
    ) -> ProducedPartition:
        """Like `add`, for one partition, however many records have to be looked at."""
        try:
            return self._add(production, message, topic, index, records)
        except ManyRecords as many:
            response = BatchResponse(index, many.leader)
            try:
                batch = await self._prepare_in_turns(many)
            except KafkaError as error:
                production.refused(topic, index, error)
                response.refuse(error)
            else:
                production.batches.append(response)
                self._batches.setdefault(many.leader, []).append((response, batch))
            return response

    async def _prepare_in_turns(self, many: ManyRecords) -> Prepared:
        """The codecs work in a thread, and do not block the event loop."""
        leader, batch, header = many.leader, many.batch, many.header
        rules, now_ms, turns = leader.settings.rules, self._now_ms, self._parts.turns
        in_thread = self._parts.in_thread
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
            if self._parts.asks and topic is not None:
                self._check_access(production, topic, records)
            leader = self._leader(message.acks, topic, index)
        except KafkaError as error:
            production.refused(topic, index, error)
            refused = ProducedPartition(index, error.code, error_message=error.message or None)
            maybe_hint(self._parts.cluster, production.request, topic, refused)
            return refused
        response = BatchResponse(index, leader)
        try:
            if message.acks == ALL and not leader.has_enough_replicas:
                leader.check_enough_replicas()
            if self._parts.disk.is_full and self._parts.disk.keeps_its_rest:
                raise self._parts.disk.refusal()
            batch = self._checked(leader, records, production)
        except KafkaError as error:
            production.refused(topic, index, error)
            response.refuse(error)
            return response
        production.batches.append(response)
        gathered = self._batches.get(leader)
        if gathered is None:
            self._batches[leader] = [(response, batch)]
        else:
            gathered.append((response, batch))
        return response

    def _check_access(self, production: Production, topic: str, records: memoryview | None) -> None:
        request = production.request
        if self._parts.may_write(request, Resource.TOPIC, topic):
            return
        if is_transactional(records) and not self.may_use(request, production.transactional_id):
            raise TakesLong  # the whole request is refused: see `handler`
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _leader(self, acks: int, topic: str | None, index: int) -> Leader:
        if acks not in (0, 1, ALL):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")
        return self._parts.replicas.leader(topic, index)

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
        if production.producer != producer or not self.may_use(
            production.request, production.transactional_id
        ):
            raise TakesLong  # the whole request is refused: see `handler`
        if not leader.log.producers.has_open_transaction(*producer):
            self.first_batches.append((production, FirstBatch(leader, *producer, header.base_sequence)))

    def may_use(self, request: Request, transactional_id: str | None) -> bool:
        """True if the caller may write in transactions of this id."""
        if transactional_id is None:
            return False
        parts = self._parts
        return not parts.asks or parts.may_write(request, Resource.TRANSACTIONAL_ID, transactional_id)

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
        late: list[tuple[list[FirstBatch], Awaitable[Response]]] = []
        for (version, name, _), batches in questions.items():
            response = self._parts.coordination.verification.verify(version, name, batches)
            if isinstance(response, list):
                self._heard(batches, response)
            else:
                late.append((batches, response))
        return self._hear(late) if late else None

    async def _hear(self, late: Sequence[tuple[list[FirstBatch], Awaitable[Response]]]) -> None:
        responses = await asyncio.gather(*(response for _, response in late))
        for (batches, _), response in zip(late, responses, strict=True):
            self._heard(batches, response)

    def _heard(self, batches: list[FirstBatch], response: Response) -> None:
        for (leader, producer_id, producer_epoch, _), verified in zip(batches, response, strict=True):
            self._verified[leader, producer_id, producer_epoch] = verified

    def keep(self) -> None:
        """The memory of the frames is about to be overwritten."""
        for gathered in self._batches.values():
            gathered[:] = [
                (response, (memoryview(bytearray(batch)), header)) for response, (batch, header) in gathered
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
            for (response, _), result in zip(gathered, results, strict=True):
                response.appended(result)
                if response.error_code == ErrorCode.KAFKA_STORAGE_ERROR and isinstance(result, KafkaError):
                    self._parts.disk.write_failed(result)
        return bool(leaders)

    def _append_verified(
        self, leader: Leader, batch: memoryview, header: BatchHeader
    ) -> AppendResult | KafkaError:
        """Append the batch with what the log asks for where a transaction begins."""
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


def is_transactional(records: memoryview | None) -> bool:
    """Look at the header of the first batch, which was not checked yet."""
    if not records or len(records) < HEADER_SIZE:
        return False
    return bool(read_header(records).attributes & TRANSACTIONAL)
