"""A client that produces: plain and idempotent, with every kind of acks, batches in flight, again after losses."""

from typing import Any

from odradek.errors import ErrorCode
from tests.simulation.connection import Connection, Disconnected
from tests.simulation.log_history import Batch, PartitionHistory, View
from tests.simulation.sender import Sender, Sequences

KEYS = [b"k%d" % number for number in range(8)]
PADDINGS = [b"", b"", b"x" * 20, b"y" * 100]

# After these, nobody knows whether the batch is there; a client sends it again.
AGAIN = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
}


class Producer(Sender):
    max_in_flight = 5
    timeout_ms = 1_000
    again = AGAIN

    async def act(self) -> None:
        await self.pause(0.012)
        partition = self.play.any_partition(self.rng)
        if partition is None:
            return
        if self.rng.random() < 0.5:
            await self._produce_idempotently(partition, self.rng.randint(1, self.max_in_flight))
        else:
            await self._produce(partition)

    async def settle(self) -> None:
        """Bring everything that is pending to an end."""
        for partition, sequences in list(self._sequences.items()):
            while self.is_pending(partition, sequences):
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

    def _now_ms(self) -> int:
        host = self.play.machine.host
        return host.now_ms() if host is not None else 0

    def _padding(self, batch: Batch) -> bytes:
        return PADDINGS[batch.number % len(PADDINGS)]

    async def _connection_for(self, partition: PartitionHistory) -> Connection:
        return await self.connection()

    def _take(self, partition: PartitionHistory, batch: Batch, view: View, response: Any) -> int:
        """Returns the error code."""
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
                    self._check_code(code, batch)
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

    def _may_be_forgotten(self, partition: PartitionHistory, batch: Batch, view: View) -> bool:
        return partition.may_forget(batch, view)

    async def _was_refused(self, sequences: Sequences) -> None:
        await self.pause(0.03)
