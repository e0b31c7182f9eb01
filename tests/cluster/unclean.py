"""Clients of a topic that may elect its leaders uncleanly: nothing that is acknowledged there need stay.

What is promised all the same: whatever is read was sent to that topic, and is whole. `replicated` checks that replicas
in sync agree, and that all do in the end.
"""

from odradek.errors import ErrorCode
from odradek.records.record import decode_batch
from tests.cluster.committed import read_log
from tests.cluster.traffic import FETCH_VERSION, Producer, check_read_code
from tests.simulation.batches import is_intact, whole_batches
from tests.simulation.connection import Violation
from tests.simulation.log_history import Batch, PartitionHistory, TopicHistory, View, identity
from tests.simulation.reader import by_topic, fetch_request

# Settings as `make_topic` takes them.
UNCLEAN = {"unclean_leader_election_enable": "true", "internal_segment_bytes": "800"}


class Gambler(Producer):
    """Writes to that topic, and reads it."""

    topic: TopicHistory | None = None  # once it is made
    _position = 0

    async def act(self) -> None:
        await self.pause(self._pause_seconds)
        if self.topic is None:
            return
        (partition,) = self.topic.partitions
        if self.rng.random() < 0.8:
            await self._produce(partition, self.rng.choice([-1, 1]))
        else:
            await self._read(partition)

    def _take(self, partition: PartitionHistory, batch: Batch, view: View, response: object) -> int:
        """The error code. An acknowledgement promises nothing."""
        (result,) = response.responses[0].partition_responses  # type: ignore[attr-defined]
        if result.error_code == ErrorCode.NONE:
            batch.base_offset = result.base_offset
            self.play.count("batches in the unclean topic")
        return int(result.error_code)

    async def _read(self, partition: PartitionHistory) -> None:
        connection, epoch = await self.leader_of(partition)
        request = fetch_request(by_topic([(partition, self._position, partition.view())]), True, 0, 1 << 20)
        request.topics[0].partitions[0].current_leader_epoch = epoch
        response = await connection.ask(request, FETCH_VERSION)
        found = response.responses[0].partitions[0]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._position = 0
        elif found.error_code:
            check_read_code(found.error_code, partition)
            await self.router.refresh()
        else:
            self._position = self._check(partition, memoryview(found.records or b""), found.high_watermark)

    def _check(self, partition: PartitionHistory, data: memoryview, high_watermark: int) -> int:
        """P6, P12, P13. Returns where to go on."""
        end = self._position
        for header, content in whole_batches(data):
            if not is_intact(content, header):
                raise Violation(f"P12: {partition.name}: the batch at {header.base_offset} is damaged")
            if header.last_offset < end or header.next_offset > high_watermark:
                raise Violation(
                    f"P13: {partition.name}: {header.base_offset} to {header.last_offset} is read after {end}, below "
                    f"{high_watermark}"
                )
            end = header.next_offset
            for record in decode_batch(content, header):
                number, at = identity(record)
                batch = self.play.logs.batches.get(number)
                if batch is None or batch.topic_id != partition.topic.id or at >= batch.size:
                    raise Violation(f"P12: {partition.name} has a record that was never sent there: {record}")
        return end

    def count_lost(self) -> None:
        """At the end: how many batches were acknowledged with acks=all, and are gone."""
        if self.topic is None:
            return
        (partition,) = self.topic.partitions
        log = self.play.replicated.logs[self.topic.id, 0]
        replica = self.play.replicated.replica(log, log.registration.leader)
        assert replica is not None
        self._position = 0
        self._check(partition, memoryview(b"".join(item.data for item in log.history)), log.high_watermark)
        there = {
            identity(record)[0]
            for item in read_log(replica.log, 0)
            for record in decode_batch(memoryview(item.data))
        }
        for batch in self.play.logs.batches.values():
            if batch.topic_id == self.topic.id and batch.acks == -1 and batch.base_offset >= 0:
                self.play.counts["acknowledged batches that unclean elections lost"] = self.play.counts.get(
                    "acknowledged batches that unclean elections lost", 0
                ) + (batch.number not in there)
