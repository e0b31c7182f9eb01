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
- While the disk is full (`services.upkeep.disk_watch`) everything is refused with KAFKA_STORAGE_ERROR, at which clients
  look for another leader.
- A batch that was appended before (idempotent producer) is answered with its first offset.
- Internal topics are for coordinators only: INVALID_TOPIC_EXCEPTION.
- NOT_LEADER_OR_FOLLOWER comes with the leader and its address (KIP-951, version 10 on), unless the partition moved
  while its batch was being checked.
- The first batch of a transaction in a partition needs the word of its coordinator
  (`services.coordination.verification`). One on this broker mostly gives it at once; else the requests that arrived
  together wait for it, and later ones on the connection with them. Further batches of the transaction need no question.
"""

from collections.abc import Awaitable, Coroutine, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from odradek.api.produce.appends import Appends, is_transactional
from odradek.api.produce.production import Acknowledgement, ProduceParts, Production
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.records.batch import read_header
from odradek.records.validation import TakesLong
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.produce import ProducedPartition, ProducedTopic, ProduceRequest, TopicBatches

A_FEW_PARTITIONS = 10  # are appended without a pause even so

Run = Sequence[tuple[Request, ProduceRequest]]


class Handler:
    """Handles runs of requests; keeps nothing of them."""

    def __init__(self, services: Services) -> None:
        self._parts = ProduceParts(services)

    def handle_all(self, run: Run) -> Coroutine[Any, Any, None] | None:
        """Returns the remaining work if a coordinator has to be waited for, or if one of the requests takes long: that
        one, and all after it."""
        appends = Appends(self._parts)
        productions: list[Production] = []
        for request, message in run:
            try:
                productions.append(appends.add(request, message))
            except TakesLong:
                break
        rest = [(request, _copy(message)) for request, message in run[len(productions) :]]
        if appends.first_batches and (responses := appends.verify()) is not None:
            appends.keep()
            return self._write_when_verified(appends, responses, productions, rest)
        appends.write()
        self._answer(productions)
        return self.handle_in_turns(rest) if rest else None

    async def _write_when_verified(
        self, appends: Appends, responses: Awaitable[None], productions: Sequence[Production], rest: Run
    ) -> None:
        await responses
        appends.write()
        self._answer(productions)
        await self.handle_in_turns(rest)

    async def handle_in_turns(self, run: Run) -> None:
        """One after the other, a few batches in each turn of the event loop."""
        for request, message in run:
            production = await self._append_in_turns(request, message)
            self._answer([production])
            if request.unfinished is not None:
                await request.unfinished

    async def _append_in_turns(self, request: Request, message: ProduceRequest) -> Production:
        """A batch is written as soon as it is checked, but those of a transaction that begins once all are verified."""
        production, appends = Production(request, message), Appends(self._parts)
        refusal = _refusal_of(message, appends.may_use(request, message.transactional_id))
        if refusal is not None:
            _refuse_all(production, message, refusal)
            return production
        pace = self._parts.turns.pace()
        for topic in message.topics:
            name = appends.name_of(topic)
            responses: list[ProducedPartition] = []
            production.responses.append(ProducedTopic(topic.name, topic.topic_id, responses))
            for index, records in topic.partitions:
                responses.append(await appends.add_in_turns(production, message, name, index, records))
                if not appends.first_batches:
                    appends.write()
                await pace.step()
        if appends.first_batches and (verified := appends.verify()) is not None:
            await verified
        while appends.write(most=A_FEW_PARTITIONS):
            await pace.step()
        return production

    def _answer(self, productions: Sequence[Production]) -> None:
        failures = ""
        for waits_for, group in groupby(productions, attrgetter("waits_for")):
            timeout_ms, partitions = waits_for
            if partitions:
                Acknowledgement(list(group)).wait(self._parts, timeout_ms)
                continue
            for production in group:
                if production.wants == 0:
                    failures = failures or production.finish_without_response()
                else:
                    production.send()
        if failures:
            raise ProtocolError(f"Produce with acks=0 failed with {failures}")


def _refuse_all(production: Production, message: ProduceRequest, error: KafkaError) -> None:
    production.request.refused("", error.code, error.message)
    for topic in message.topics:
        refused = [
            ProducedPartition(index, error.code, error_message=error.message or None)
            for index, _ in topic.partitions
        ]
        production.responses.append(ProducedTopic(topic.name, topic.topic_id, refused))


def _refusal_of(message: ProduceRequest, may_use_transaction: bool) -> KafkaError | None:
    """Why the whole request is refused, whatever is in its partitions."""
    producers = {
        (header.producer_id, header.producer_epoch)
        for topic in message.topics
        for _, records in topic.partitions
        if records is not None and is_transactional(records) and (header := read_header(records))
    }
    if producers and not may_use_transaction:
        return KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if len(producers) > 1:
        reason = "Transactional records contained more than one producer ID"
        return KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, reason)
    return None


def _copy(message: ProduceRequest) -> ProduceRequest:
    """Copy the request into memory of its own: that of the frame is about to be overwritten."""
    topics = [
        TopicBatches(name, topic_id, [(index, _copied(records)) for index, records in partitions])
        for name, topic_id, partitions in message.topics
    ]
    return ProduceRequest(message.transactional_id, message.acks, message.timeout_ms, topics)


def _copied(records: memoryview | None) -> memoryview | None:
    return None if records is None else memoryview(bytearray(records))
