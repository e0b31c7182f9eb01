"""The common part of all producers: batches, plain and idempotent, in flight together, and again after losses."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from odradek.errors import ErrorCode
from odradek.records.record import build_batch
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.simulation.connection import Connection, Violation
from tests.simulation.log_history import Batch, PartitionHistory, View
from tests.simulation.play import Client, Play

BY_NAME, BY_ID = 12, 13  # versions of Produce


@dataclass
class Sequences:
    """An idempotent producer of one partition."""

    producer_id: int
    next_sequence: int = 0
    is_known: bool = False  # a batch was acknowledged
    pending: list[tuple[Batch, View]] = field(default_factory=list)
    retry_at: float = 0.0  # not before; some clients take their time


class Sender(Client):
    max_in_flight: int  # a broker remembers five batches of a producer
    timeout_ms: int
    again: Collection[
        ErrorCode
    ]  # after these, nobody knows whether the batch is there; a client sends it again

    def __init__(self, play: Play, name: str) -> None:
        super().__init__(play, name)
        self._sequences: dict[PartitionHistory, Sequences] = {}

    def is_pending(self, partition: PartitionHistory, sequences: Sequences) -> bool:
        """False also for what was given up meanwhile, and its sequences with it."""
        is_current = self._sequences.get(partition) is sequences
        return is_current and bool(sequences.pending) and partition.topic.is_stable

    # --- what kinds of producers do in their own way ---

    def _new_batch(self, partition: PartitionHistory, acks: int) -> Batch:
        raise NotImplementedError

    def _now_ms(self) -> int:
        raise NotImplementedError

    def _padding(self, batch: Batch) -> bytes:
        return b""

    async def _connection_for(self, partition: PartitionHistory) -> Connection:
        """Raises Disconnected."""
        raise NotImplementedError

    def _take(self, partition: PartitionHistory, batch: Batch, view: View, response: Any) -> int:
        """Returns the error code."""
        raise NotImplementedError

    def _may_be_forgotten(self, partition: PartitionHistory, batch: Batch, view: View) -> bool:
        """True if a broker need not know the batches before this one any more."""
        raise NotImplementedError

    async def _was_refused(self, sequences: Sequences) -> None:
        raise NotImplementedError

    # --- batches ---

    def _request(self, batch: Batch) -> ProduceRequest:
        options = {}
        if batch.is_idempotent:
            options = {"producer_id": batch.producer_id, "producer_epoch": 0, "base_sequence": batch.sequence}
        records = batch.records(self._now_ms(), self._padding(batch))
        data = [PartitionProduceData(batch.index, bytes(build_batch(records, **options)))]
        if batch.topic_id is None:
            topic = TopicProduceData(name=batch.topic, partition_data=data)
        else:
            topic = TopicProduceData(topic_id=batch.topic_id, partition_data=data)
        return ProduceRequest(None, batch.acks, self.timeout_ms, [topic])

    def _send(self, connection: Connection, batch: Batch) -> Any:
        """Returns the future response; None with acks=0."""
        version = BY_NAME if batch.topic_id is None else BY_ID
        if batch.acks == 0:
            connection.send_only(self._request(batch), version)
            return None
        return connection.send(self._request(batch), version)

    def _check_code(self, code: int, batch: Batch) -> None:
        if code != ErrorCode.NONE and code not in self.again:
            raise Violation(
                f"T2: batch {batch.number} (producer {batch.producer_id}, sequence {batch.sequence}) was answered "
                f"with {ErrorCode(code).name}"
            )

    # --- idempotent ---

    async def _sequences_of(self, partition: PartitionHistory) -> Sequences | None:
        if partition not in self._sequences:
            response = await self.ask(InitProducerIdRequest(None, 0), 4)
            if response.error_code != ErrorCode.NONE:
                await self.pause(0.05)
                return None
            self.play.give_producer_id(response.producer_id, self.name)
            self._sequences[partition] = Sequences(response.producer_id)
        return self._sequences[partition]

    async def _produce_idempotently(self, partition: PartitionHistory, count: int) -> None:
        sequences = await self._sequences_of(partition)
        if sequences is None or self.play.world.now() < sequences.retry_at:
            return
        connection = await self._connection_for(partition)
        pending = sequences.pending
        # A broker that knows nothing of a producer takes any sequence from it, so nobody may overtake the first batch.
        room = self.max_in_flight if sequences.is_known else 1
        for _ in range(min(count, room - len(pending))):
            batch = self._new_batch(partition, -1)
            batch.producer_id, batch.sequence = sequences.producer_id, sequences.next_sequence
            sequences.next_sequence += batch.size
            pending.append((batch, partition.view()))
        sent = []
        for batch, view in list(pending):
            partition.sending(batch)
            sent.append((batch, view, self._send(connection, batch)))
        was_refused = False
        for batch, view, response in sent:
            code = self._take(partition, batch, view, await connection.until(response))
            if code == ErrorCode.NONE:
                pending.remove((batch, view))
                sequences.is_known = True
            elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and was_refused:
                pass  # after one that is missing
            elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._may_be_forgotten(
                partition, batch, view
            ):
                del self._sequences[partition]
                return
            else:
                self._check_code(code, batch)
                was_refused = True
        if was_refused:
            await self._was_refused(sequences)
