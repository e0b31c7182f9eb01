"""Clients that read: records, as read_committed and read_uncommitted consumers do, and the offsets of groups."""

import asyncio
from contextlib import suppress

from odradek.errors import ErrorCode
from odradek.records.record import decode_batch
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.cluster.traffic import AGAIN, FETCH_VERSION, LATEST, LIST_VERSION, ClusterClient
from tests.simulation.connection import Disconnected, Violation
from tests.simulation.log_history import PartitionHistory
from tests.transactions.play import GROUP_AGAIN, TransactionPlay, offsets_request

UNCOMMITTED, COMMITTED = 0, 1
OFFSETS_VERSION = 9


def fetch_request(
    partition: PartitionHistory, epoch: int, offset: int, isolation: int, max_wait_ms: int
) -> FetchRequest:
    wanted = FetchPartition(partition.index, epoch, offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=isolation,
        topics=[FetchTopic(topic_id=partition.topic.id, partitions=[wanted])],
    )


class TransactionReader(ClusterClient):
    play: TransactionPlay

    def __init__(self, play: TransactionPlay, name: str, pause_seconds: float) -> None:
        super().__init__(play, name)
        self._pause_seconds = pause_seconds
        self._positions: dict[tuple[PartitionHistory, int], int] = {}

    async def act(self) -> None:
        await self.pause(self._pause_seconds)
        partition = self.play.any_partition(self.rng)
        if partition is None:
            return
        if self.rng.random() < 0.15:
            await self._list_latest(partition)
            return
        isolation = UNCOMMITTED if self.rng.random() < 0.2 else COMMITTED
        position = self._positions.get((partition, isolation), 0)
        if self.rng.random() < 0.4:
            position = self.rng.randint(0, self.play.log_of(partition).high_watermark)
        after = await self.fetch(partition, position, isolation, self.rng.choice([0, 0, 30]))
        if after is None:
            await self.router.refresh()
        else:
            self._positions[partition, isolation] = after

    async def fetch(
        self, partition: PartitionHistory, offset: int, isolation: int, max_wait_ms: int
    ) -> int | None:
        """Fetch, and return where to go on; None if somebody else leads."""
        connection, epoch = await self.leader_of(partition)
        request = fetch_request(partition, epoch, offset, isolation, max_wait_ms)
        response = await connection.ask(request, FETCH_VERSION)
        found = response.responses[0].partitions[0]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return None  # a leader that has not heard of it yet
        if found.error_code:
            self._check_code(partition, found.error_code)
            return None
        if found.high_watermark > self.play.log_of(partition).high_watermark:
            raise Violation(f"P6: {partition.name} shows a high watermark of {found.high_watermark}")
        return self.play.check_fetched(partition, offset, found, isolation == COMMITTED)

    async def _list_latest(self, partition: PartitionHistory) -> None:
        """T5: for a read_committed consumer the log ends at the last stable offset."""
        connection, epoch = await self.leader_of(partition)
        knew = self.play.knows(connection.node, partition.topic)
        wanted = [
            ListOffsetsTopic(partition.topic.name, [ListOffsetsPartition(partition.index, epoch, LATEST)])
        ]
        response = await connection.ask(ListOffsetsRequest(-1, COMMITTED, wanted), LIST_VERSION)
        (result,) = response.topics[0].partitions
        if result.error_code:
            self._check_code(partition, result.error_code)
            await self.router.refresh()
            return
        if not knew or not self.play.knows(connection.node, partition.topic):
            return  # another topic of that name may have been meant
        stable = self.play.witness.fold(self.play.log_of(partition)).last_stable_offset
        if result.offset > stable:
            raise Violation(
                f"T5: the latest offset of {partition.name} is {result.offset} for a read_committed consumer, and a "
                f"transaction is open at {stable}"
            )
        self.play.count("latest stable offsets")

    def _check_code(self, partition: PartitionHistory, code: int) -> None:
        if code not in AGAIN:
            raise Violation(f"{partition.name} cannot be read: {ErrorCode(code).name}")

    async def read_all(self, partition: PartitionHistory, isolation: int) -> None:
        """Nothing is open any more: everything is read."""
        offset = 0
        while offset < self.play.log_of(partition).high_watermark:
            try:
                after = await self.fetch(partition, offset, isolation, 0)
                if after is None:
                    await asyncio.sleep(0.05)
                    await self.router.refresh()
                else:
                    offset = after
            except Disconnected:
                await asyncio.sleep(0.05)

    async def read_compacted(self, partition: PartitionHistory) -> None:
        """T11: all of a log that was compacted, as a read_committed consumer sees it."""
        visible: dict[int, tuple[bytes | None, bytes | None]] = {}
        offset, end = 0, self.play.log_of(partition).high_watermark
        while offset < end:
            try:
                connection, _ = await self.leader_of(partition)
                request = fetch_request(partition, -1, offset, COMMITTED, 0)
                found = (await connection.ask(request, FETCH_VERSION)).responses[0].partitions[0]
            except Disconnected:
                found = None
            if found is None or found.error_code or found.high_watermark < end:
                await asyncio.sleep(0.1)
                with suppress(Disconnected):
                    await self.router.refresh()
                continue
            batches = list(self.play.visible_batches(partition.name, found))
            for header, batch, is_visible in batches:
                if is_visible and not header.is_control:
                    for record in decode_batch(batch, header):
                        visible[record.offset] = record.key, record.value
                offset = header.next_offset
            if not batches:
                break  # the rest was compacted away
        self._check_compacted(partition, visible)

    def _check_compacted(
        self, partition: PartitionHistory, visible: dict[int, tuple[bytes | None, bytes | None]]
    ) -> None:
        committed = self.play.committed_records(partition)
        wrong = {offset: record for offset, record in visible.items() if committed.get(offset) != record}
        newest = {key: offset for offset, (key, _) in committed.items()}
        missing = [offset for offset in newest.values() if offset not in visible]
        if wrong or missing:
            raise Violation(
                f"T11: {partition.name} was compacted: a read_committed consumer sees {wrong}, which is not committed, "
                f"and misses {missing}"
            )
        if len(visible) < len(committed):
            self.play.count("committed records that were compacted away")


class OffsetsReader(ClusterClient):
    """Asks any broker for the offsets of a group."""

    play: TransactionPlay

    def __init__(self, play: TransactionPlay, name: str, groups: list[str], pause_seconds: float) -> None:
        super().__init__(play, name)
        self._groups = groups
        self._pause_seconds = pause_seconds

    async def act(self) -> None:
        await self.pause(self._pause_seconds)
        machines = self.play.cluster.machines
        brokers = [node_id for node_id in self.play.cluster.brokers if machines[node_id].is_on]
        if brokers:
            group = self.rng.choice(self._groups)
            await self.read(self.rng.choice(brokers), group, self.rng.random() < 0.5)

    async def read(self, broker_id: int, group: str, is_stable: bool) -> int | None:
        """The committed offset; None if this broker is not the coordinator, or the offset is not stable."""
        connection = await self.router.connection_to(broker_id)
        before = self.play.before(group, broker_id, is_stable)
        (found,) = (await connection.ask(offsets_request(group, is_stable), OFFSETS_VERSION)).groups
        if found.error_code:
            if found.error_code not in GROUP_AGAIN:
                raise Violation(f"OffsetFetch was answered with {ErrorCode(found.error_code).name}")
            return None
        return self.play.check_position(group, before, found.topics[0].partitions[0])
