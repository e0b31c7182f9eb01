"""A client that produces: plain and idempotent, with every kind of acks, batches in flight, again after losses."""

from dataclasses import dataclass, field
from typing import Any

from odradek.errors import ErrorCode
from odradek.records.record import build_batch
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.simulation.connection import Connection, Disconnected, Violation
from tests.simulation.log_history import Batch, PartitionHistory, View
from tests.simulation.play import Client, Play

KEYS = [b"k%d" % number for number in range(8)]
MAX_IN_FLIGHT = 5
BY_NAME, BY_ID = 12, 13
PADDINGS = [b"", b"", b"x" * 20, b"y" * 100]

# After these, nobody knows whether the batch is there; a client sends it again.
AGAIN = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
}


@dataclass
class Sequences:
    """An idempotent producer of one partition. At most five batches are in flight: a broker remembers no more."""

    producer_id: int
    next_sequence: int = 0
    is_known: bool = False  # a batch was acknowledged
    pending: list[tuple[Batch, View]] = field(default_factory=list)


class Producer(Client):
    def __init__(self, play: Play, name: str) -> None:
        super().__init__(play, name)
        self._sequences: dict[PartitionHistory, Sequences] = {}

    async def act(self) -> None:
        await self.pause(0.012)
        partition = self.play.any_partition(self.rng)
        if partition is None:
            return
        if self.rng.random() < 0.5:
            await self._produce_idempotently(partition, self.rng.randint(1, MAX_IN_FLIGHT))
        else:
            await self._produce(partition)

    async def settle(self) -> None:
        """Bring everything that is pending to an end."""
        for partition, sequences in list(self._sequences.items()):
            # What is pending may be given up meanwhile, and its sequences with it.
            while (
                sequences.pending
                and partition.topic.is_stable
                and self._sequences.get(partition) is sequences
            ):
                try:
                    await self._produce_idempotently(partition, 0)
                except Disconnected:
                    pass
                await self.pause(0.02)

    # --- batches ---

    def _new_batch(self, partition: PartitionHistory, acks: int) -> Batch:
        size = self.rng.choice([1, 1, 2, 3])
        keys = self.rng.choices(KEYS, k=size)
        tombstones = frozenset({self.rng.randrange(size)} if self.rng.random() < 0.05 else ())
        batch = self.play.logs.new_batch(partition.topic.name, partition.index, keys, tombstones, acks)
        batch.topic_id = partition.topic.id if self.rng.random() < 0.7 else None
        return batch

    def _request(self, batch: Batch) -> ProduceRequest:
        options = {}
        if batch.is_idempotent:
            options = {"producer_id": batch.producer_id, "producer_epoch": 0, "base_sequence": batch.sequence}
        host = self.play.machine.host
        now_ms = host.now_ms() if host is not None else 0
        records = batch.records(now_ms, PADDINGS[batch.number % len(PADDINGS)])
        data = [PartitionProduceData(batch.index, bytes(build_batch(records, **options)))]
        if batch.topic_id is None:
            topic = TopicProduceData(name=batch.topic, partition_data=data)
        else:
            topic = TopicProduceData(topic_id=batch.topic_id, partition_data=data)
        return ProduceRequest(None, batch.acks, 1_000, [topic])

    def _send(self, connection: Connection, batch: Batch) -> Any:
        version = BY_NAME if batch.topic_id is None else BY_ID
        if batch.acks == 0:
            connection.send_only(self._request(batch), version)
            return None
        return connection.send(self._request(batch), version)

    def _take(self, partition: PartitionHistory, batch: Batch, view: View, response: Any) -> int:
        """The error code."""
        (result,) = response.responses[0].partition_responses
        if result.error_code != ErrorCode.NONE:
            self.play.check_unknown(partition.topic, result.error_code)
        elif batch.topic_id is not None or partition.topic.is_stable:
            partition.acknowledged(batch, result.base_offset, view)
            self.play.acknowledged += 1
        return int(result.error_code)

    # --- plain ---

    async def _produce(self, partition: PartitionHistory) -> None:
        acks = self.rng.choice([-1, -1, 1, 0])
        batches = [self._new_batch(partition, acks) for _ in range(self.rng.randint(1, 4))]
        connection = await self.connection()
        sent = []
        for batch in batches:
            view = partition.sending(batch)
            sent.append((batch, view, self._send(connection, batch)))
        for batch, view, response in sent:
            if response is not None:
                try:
                    code = self._take(partition, batch, view, await connection.until(response))
                    check_code(code, batch)
                except Disconnected:
                    if self.rng.random() < 0.5:
                        await self._repeat(partition, batch, view)
                    raise

    async def _repeat(self, partition: PartitionHistory, batch: Batch, view: View) -> None:
        """A plain producer that tries again may write twice."""
        await self.pause(0.05)
        connection = await self.connection()
        if partition.topic.is_stable:
            partition.sending(batch)
            self._take(partition, batch, view, await connection.until(self._send(connection, batch)))

    # --- idempotent ---

    async def _sequences_of(self, partition: PartitionHistory) -> Sequences | None:
        if partition not in self._sequences:
            response = await self.ask(InitProducerIdRequest(None, 0), 4)
            if response.error_code != ErrorCode.NONE:
                await self.pause(0.05)
                return None
            self._sequences[partition] = Sequences(response.producer_id)
        return self._sequences[partition]

    async def _produce_idempotently(self, partition: PartitionHistory, count: int) -> None:
        sequences = await self._sequences_of(partition)
        if sequences is None:
            return
        connection = await self.connection()
        pending = sequences.pending
        # A broker that knows nothing of a producer takes any sequence from it, so nobody may overtake the first batch.
        room = MAX_IN_FLIGHT if sequences.is_known else 1
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
            elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and partition.may_forget(batch, view):
                del self._sequences[partition]
                return
            else:
                check_code(code, batch)
                was_refused = True
        if was_refused:
            await self.pause(0.03)


def check_code(code: int, batch: Batch) -> None:
    if code != ErrorCode.NONE and code not in AGAIN:
        raise Violation(
            f"T2: batch {batch.number} (producer {batch.producer_id}, sequence {batch.sequence}) was answered with "
            f"{ErrorCode(code).name}"
        )
