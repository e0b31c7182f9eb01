"""The clients of a replicated cluster: they produce, read, and commit offsets in groups, wherever the leaders are.

What they were told is compared with all they were told before (`simulation.log_history`, `simulation.group_history`),
and with what is committed (`replicated`): a record that was acknowledged with acks=all is committed by then, whatever
leader said so, and in whatever epoch. Of acks=1 nothing is expected, but that whatever is read was sent.
"""

import asyncio
from typing import Any

from odradek.errors import ErrorCode
from odradek.model import OFFSETS_TOPIC
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.cluster.clusters import Cluster
from tests.cluster.kept import keys_and_tombstones
from tests.cluster.replicated import ReplicatedLogs
from tests.lives.members import committed_offsets_request
from tests.simulation.connection import Connection, Disconnected, Violation
from tests.simulation.group_history import committed_offsets
from tests.simulation.log_history import Batch, PartitionHistory, TopicHistory, View
from tests.simulation.members import AGAIN as COORDINATOR_AGAIN
from tests.simulation.play import Client, Play
from tests.simulation.reader import by_topic, fetch_request
from tests.simulation.sender import Sender, Sequences
from tests.simulation.world import World

KEYS = [b"k"]
START_MS = 1_700_000_000_000
PRODUCE_TIMEOUT_MS = 350
FETCH_VERSION, LIST_VERSION = 16, 7
LATEST, EARLIEST = -1, -2

# After these a client looks for the leader, and tries again.
AGAIN = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
}


class ClusterPlay(Play):
    def __init__(self, world: World, cluster: Cluster, replicated: ReplicatedLogs) -> None:
        super().__init__(world, cluster)
        self.logs.has_replicas = True
        self.replicated = replicated
        self.shown: dict[PartitionHistory, dict[int, int]] = {}  # the highest high watermark, by epoch

    @property
    def lives(self) -> int:
        return super().lives + sum(
            log.registration.leader_epoch
            for log in self.replicated.logs.values()
            if log.name.startswith(OFFSETS_TOPIC)
        )

    def check_unknown(self, topic: TopicHistory, code: int) -> None:
        """A broker may not have heard of a topic yet."""

    def check_committed(self, partition: PartitionHistory, batch: Batch, base_offset: int) -> None:
        log = self.replicated.logs[partition.topic.id, partition.index]
        if base_offset + batch.size > log.high_watermark:
            self.replicated.fail(
                log, f"P9: batch {batch.number} was acknowledged at {base_offset}, which is not committed"
            )

    def knows(self, node: str, topic: TopicHistory) -> bool:
        """Returns True if this broker knows the topic, and no other of its name."""
        (machine,) = [item for item in self.cluster.machines.values() if item.name == node]
        known = machine.node.metadata.image.topics.get(topic.name) if machine.node is not None else None
        return known is not None and known.id == topic.id

    def floor(self, partition: PartitionHistory, epoch: int) -> int:
        """Return what leaders up to this epoch have shown."""
        shown = self.shown.get(partition, {})
        return max((offset for known, offset in shown.items() if known <= epoch), default=0)

    def show(self, partition: PartitionHistory, epoch: int, high_watermark: int) -> None:
        shown = self.shown.setdefault(partition, {})
        shown[epoch] = max(shown.get(epoch, 0), high_watermark)


class ClusterClient(Client):
    play: ClusterPlay

    async def leader_of(self, partition: PartitionHistory) -> tuple[Connection, int]:
        """A connection to the leader, and its epoch. Raises Disconnected."""
        leader, epoch = self.router.leader_of(partition.topic.id, partition.index)
        if leader < 0:
            await self.router.refresh()
            leader, epoch = self.router.leader_of(partition.topic.id, partition.index)
            if leader < 0:
                raise Disconnected("nobody leads")
        try:
            return await self.router.connection_to(leader), epoch
        except Disconnected:
            await self.router.refresh()
            raise


class Producer(ClusterClient, Sender):
    max_in_flight = 3
    timeout_ms = PRODUCE_TIMEOUT_MS
    again = AGAIN

    def __init__(self, play: ClusterPlay, name: str, pause_seconds: float) -> None:
        super().__init__(play, name)
        self._pause_seconds = pause_seconds

    async def act(self) -> None:
        await self.pause(self._pause_seconds)
        partition = self.play.any_partition(self.rng)
        if partition is None:
            return
        chance = self.rng.random()
        # A leader without its memory does not know what retention has deleted: it takes a retry for a new batch.
        if chance < 0.6 and not partition.topic.may_be_deleted:
            await self._produce_idempotently(partition, self.rng.randint(1, self.max_in_flight))
        else:
            await self._produce(partition, -1 if chance < 0.7 else 1)

    async def settle(self) -> None:
        """Bring everything that is pending to an end."""
        for partition, sequences in list(self._sequences.items()):
            while self.is_pending(partition, sequences):
                try:
                    sequences.retry_at = 0.0
                    await self._produce_idempotently(partition, 0)
                except Disconnected:
                    await self.pause(0.1)

    # --- batches ---

    def _new_batch(self, partition: PartitionHistory, acks: int) -> Batch:
        keys, tombstones = KEYS * self.rng.choice([1, 1, 2]), frozenset[int]()
        if partition.topic.may_be_compacted:
            keys, tombstones = keys_and_tombstones(self.rng, len(keys))
        batch = self.play.logs.new_batch(partition.topic.name, partition.index, keys, tombstones, acks)
        batch.topic_id = partition.topic.id
        return batch

    def _now_ms(self) -> int:
        return START_MS + int(self.play.world.now() * 1000)

    async def _connection_for(self, partition: PartitionHistory) -> Connection:
        connection, _ = await self.leader_of(partition)
        return connection

    def _take(self, partition: PartitionHistory, batch: Batch, view: View, response: Any) -> int:
        """Returns the error code."""
        (result,) = response.responses[0].partition_responses
        if result.error_code == ErrorCode.NONE and batch.acks == -1:
            partition.acknowledged(batch, result.base_offset, view)
            self.play.check_committed(partition, batch, result.base_offset)
            self.play.acknowledged += 1
        elif result.error_code == ErrorCode.NONE:
            self.play.count("acknowledged by the leader alone")
        return int(result.error_code)

    # --- plain ---

    async def produce(self, partition: PartitionHistory) -> bool:
        """Returns True once all in-sync replicas have it. Raises Disconnected."""
        return await self._produce(partition, -1) == ErrorCode.NONE

    async def _produce(self, partition: PartitionHistory, acks: int) -> int:
        batch = self._new_batch(partition, acks)
        connection, _ = await self.leader_of(partition)
        view = partition.sending(batch)
        response = self._send(connection, batch)
        code = self._take(partition, batch, view, await connection.until(response))
        if code:
            self._check_code(code, batch)
            await self.router.refresh()
        return code

    # --- idempotent ---

    def _may_be_forgotten(self, partition: PartitionHistory, batch: Batch, view: View) -> bool:
        """A leader that has read its log again knows of a producer what compaction has left: its newest batch."""
        return partition.topic.may_be_compacted and batch.sends > 1

    async def _was_refused(self, sequences: Sequences) -> None:
        if self.rng.random() < 0.3 and not self.play.is_over:
            sequences.retry_at = self.play.world.now() + self.rng.random()
        await self.pause(0.05)
        await self.router.refresh()


class Reader(ClusterClient):
    def __init__(self, play: ClusterPlay, name: str, pause_seconds: float) -> None:
        super().__init__(play, name)
        self._pause_seconds = pause_seconds
        self._positions: dict[PartitionHistory, int] = {}

    async def act(self) -> None:
        await self.pause(self._pause_seconds)
        partition = self.play.any_partition(self.rng)
        if partition is None:
            return
        if self.rng.random() < 0.4:
            await self._list_latest(partition)
            return
        position = self._positions.get(partition, 0)
        if self.rng.random() < 0.1:
            position = self.rng.randint(0, partition.high_watermark)
        after = await self._fetch(partition, position, self.rng.choice([0, 30]))
        if after is None:
            await self.router.refresh()
            if partition.topic.may_be_deleted:
                self._positions[partition] = await self._first_offset(partition)
        else:
            self._positions[partition] = after

    async def _fetch(self, partition: PartitionHistory, offset: int, max_wait_ms: int) -> int | None:
        """Return where to go on; None if somebody else leads."""
        connection, epoch = await self.leader_of(partition)
        floor = self.play.floor(partition, epoch)
        # The high watermark that a new leader shows in a Fetch may be lower than the one before has shown (KIP-207).
        view = partition.view()._replace(high_watermark=0)
        asked = by_topic([(partition, offset, view)])
        request = fetch_request(asked, True, max_wait_ms, 1 << 20)
        request.topics[0].partitions[0].current_leader_epoch = epoch
        response = await connection.ask(request, FETCH_VERSION)
        found = response.responses[0].partitions[0]
        log = self.play.replicated.logs[partition.topic.id, partition.index]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # A leader that was replaced, and does not know, lacks what others have committed since.
            is_fresh = offset <= floor or epoch == log.registration.leader_epoch
            if is_fresh and offset >= log.kept.start_offset:
                self.play.replicated.fail(log, f"P1: offset {offset} is out of range")
            return None
        if found.error_code:
            check_read_code(found.error_code, partition)
            return None
        if self._is_damaged(log.name, found):
            return None
        if found.high_watermark > log.high_watermark:
            self.play.replicated.fail(log, f"P6: a high watermark of {found.high_watermark} was shown")
        self.play.show(partition, epoch, found.high_watermark)
        return partition.check_fetch(view, offset, found, True)

    def _is_damaged(self, name: str, found: Any) -> bool:
        """The records of this partition are not as they were written, and the client notices."""
        return False

    async def _list_offset(self, partition: PartitionHistory, timestamp: int) -> tuple[int, int, int] | None:
        """The offset, the epoch in which a leader said so, and what leaders up to it had shown; None if nobody can tell
        now."""
        connection, epoch = await self.leader_of(partition)
        floor, knew = self.play.floor(partition, epoch), self.play.knows(connection.node, partition.topic)
        wanted = [
            ListOffsetsTopic(partition.topic.name, [ListOffsetsPartition(partition.index, epoch, timestamp)])
        ]
        response = await connection.ask(ListOffsetsRequest(-1, topics=wanted), LIST_VERSION)
        (result,) = response.topics[0].partitions
        if result.error_code:
            check_read_code(result.error_code, partition)
            await self.router.refresh()
            return None
        if not knew or not self.play.knows(connection.node, partition.topic):
            return None  # the topic is named, not its id: this may be about an earlier topic of that name
        return result.offset, epoch, floor

    async def _list_latest(self, partition: PartitionHistory) -> None:
        """P7: what leaders of no later epoch have shown is never taken back."""
        found = await self._list_offset(partition, LATEST)
        if found is None:
            return
        offset, epoch, floor = found
        if offset < floor:
            raise Violation(
                f"P7: {partition.name}: the latest offset is {offset} in epoch {epoch}, {floor} was shown before"
            )
        self.play.show(partition, epoch, offset)
        self.play.count("latest offsets")

    async def _first_offset(self, partition: PartitionHistory) -> int:
        """Return where to begin, as far as somebody can tell now."""
        found = await self._list_offset(partition, EARLIEST)
        return found[0] if found is not None else 0

    async def read_all(self, partition: PartitionHistory) -> None:
        """Everything below the high watermark."""
        offset = 0
        while offset < self.play.replicated.logs[partition.topic.id, partition.index].high_watermark:
            try:
                after = await self._fetch(partition, offset, 0)
                if after is None:
                    await asyncio.sleep(0.05)
                    await self.router.refresh()
                    if partition.topic.may_be_deleted:
                        offset = max(offset, await self._first_offset(partition))
                else:
                    offset = after
            except Disconnected:
                await asyncio.sleep(0.05)


def check_read_code(code: int, partition: PartitionHistory) -> None:
    if code not in AGAIN:
        raise Violation(f"{partition.name} cannot be read: {ErrorCode(code).name}")


class Auditor(ClusterClient):
    """Asks any broker for the offsets of a group: none but its coordinator may answer."""

    def __init__(self, play: ClusterPlay, name: str, pause_seconds: float) -> None:
        super().__init__(play, name)
        self._pause_seconds = pause_seconds

    async def act(self) -> None:
        await self.pause(self._pause_seconds)
        brokers = [
            node_id for node_id in self.play.cluster.brokers if self.play.cluster.machines[node_id].is_on
        ]
        if brokers:
            await self.audit(self.rng.choice(brokers), self.rng.choice(list(self.play.groups.groups)))

    async def audit(self, node_id: int, name: str) -> bool:
        """False if this broker is not the coordinator."""
        group = self.play.groups.groups[name]
        connection = await self.router.connection_to(node_id)
        before, sent = self._leads(node_id), self.play.world.now()
        (found,) = (await connection.ask(committed_offsets_request(group.name), 9)).groups
        after = self._leads(node_id)
        if found.error_code:
            if found.error_code not in COORDINATOR_AGAIN:
                raise Violation(f"OffsetFetch was answered with {ErrorCode(found.error_code).name}")
            return False
        if before is not None and before == after and not (before[0] or before[1]):
            raise Violation(f"C4: broker {node_id} answers for group {name}, and knows that it does not lead")
        if before is not None and before == after and before[0] and before[1]:
            offsets = committed_offsets(found)
            group.check(sent, offsets)
            if offsets:
                self.play.count("commits read back")
        return True

    def _leads(self, node_id: int) -> tuple[bool, bool, int] | None:
        """Returns if this broker believes to lead the partition of the offsets, if it does, and the epoch; there is
        one partition. None if it is off."""
        if self.play.cluster.machines[node_id].node is None:
            return None
        believed = self.play.cluster.image(node_id).partition(OFFSETS_TOPIC, 0)
        logs = [log for log in self.play.replicated.logs.values() if log.name == f"{OFFSETS_TOPIC}-0"]
        if believed is None or not logs:
            return None
        registration = logs[-1].registration
        return believed.leader == node_id, registration.leader == node_id, registration.leader_epoch
