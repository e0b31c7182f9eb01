"""A client that fetches: waits for new records, reads old ones again, and checks all it gets."""

from typing import Any

from odradek.errors import ErrorCode
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.simulation.connection import Disconnected, Violation
from tests.simulation.log_history import PartitionHistory, TopicHistory, View
from tests.simulation.play import Client, Play

EARLIEST, LATEST = -2, -1
BY_NAME, BY_ID = 12, 16

# After these a client asks again.
AGAIN = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
}

Wanted = list[tuple[PartitionHistory, int, View]]


class Refused(Exception):
    """A partition cannot be read now."""


def fetch_request(
    topics: dict[TopicHistory, Wanted], by_id: bool, max_wait_ms: int, max_bytes: int, min_bytes: int = 1
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        topics=[
            FetchTopic(
                **({"topic_id": topic.id} if by_id else {"topic": topic.name}),
                partitions=[
                    FetchPartition(partition.index, fetch_offset=offset, partition_max_bytes=max_bytes)
                    for partition, offset, _ in wanted
                ],
            )
            for topic, wanted in topics.items()
        ],
    )


def by_topic(wanted: Wanted) -> dict[TopicHistory, Wanted]:
    topics: dict[TopicHistory, Wanted] = {}
    for item in wanted:
        topics.setdefault(item[0].topic, []).append(item)
    return topics


def take_fetched(
    play: Play, topics: dict[TopicHistory, Wanted], by_id: bool, response: Any, is_whole: bool = True
) -> dict[PartitionHistory, int | None]:
    """Check a response: where to go on in each partition, None where the offset is out of range."""
    if response.error_code != ErrorCode.NONE:
        raise Violation(f"a Fetch was answered with {ErrorCode(response.error_code).name}")
    after: dict[PartitionHistory, int | None] = {}
    found = {
        (topic.topic_id if by_id else topic.topic, part.partition_index): part
        for topic in response.responses
        for part in topic.partitions
    }
    for topic, wanted in topics.items():
        for partition, offset, view in wanted:
            part = found.get((topic.id if by_id else topic.name, partition.index))
            if part is None:
                raise Violation(f"{partition.name} is not in the response to its Fetch")
            if not by_id and not topic.is_stable:
                continue  # it may be another topic of that name
            if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                partition.check_out_of_range(offset)
                after[partition] = None
            elif part.error_code in AGAIN:
                play.check_unknown(topic, part.error_code)
            elif part.error_code != ErrorCode.NONE:
                raise Violation(f"{partition.name}: {ErrorCode(part.error_code).name} at {offset}")
            else:
                after[partition] = partition.check_fetch(view, offset, part, is_whole)
    return after


async def list_offset(client: Client, partition: PartitionHistory, timestamp: int) -> int:
    """Raises Refused, Disconnected."""
    view = partition.view()
    wanted = [ListOffsetsTopic(partition.topic.name, [ListOffsetsPartition(partition.index, -1, timestamp)])]
    response = await client.ask(ListOffsetsRequest(-1, topics=wanted), 7)
    (result,) = response.topics[0].partitions
    if result.error_code != ErrorCode.NONE:
        client.play.check_unknown(partition.topic, result.error_code)
        if result.error_code not in AGAIN:
            raise Violation(f"{partition.name}: ListOffsets: {ErrorCode(result.error_code).name}")
        raise Refused
    if not partition.topic.is_stable:
        raise Refused
    if timestamp == EARLIEST:
        partition.check_start(view, result.offset)
    else:
        partition.check_high_watermark(view, result.offset)
    return int(result.offset)


class Reader(Client):
    def __init__(self, play: Play, name: str) -> None:
        super().__init__(play, name)
        self._positions: dict[PartitionHistory, int | None] = {}

    async def act(self) -> None:
        await self.pause(0.02)
        topics = self.play.topics()
        partitions = [partition for topic in topics for partition in topic.partitions]
        chosen = self.rng.sample(partitions, self.rng.randint(0, len(partitions)))
        if not chosen:
            await self.pause(0.02)
            return
        try:
            wanted = [(partition, await self._position(partition), partition.view()) for partition in chosen]
        except Refused:
            await self.pause(0.02)
            return
        by_id = self.rng.random() < 0.7
        asked = by_topic(wanted)
        max_wait_ms, max_bytes = self.rng.choice([0, 20, 300]), self.rng.choice([1, 300, 1 << 20])
        response = await self.ask(
            fetch_request(asked, by_id, max_wait_ms, max_bytes), BY_ID if by_id else BY_NAME
        )
        is_whole = max_bytes == 1 << 20
        self._positions.update(take_fetched(self.play, asked, by_id, response, is_whole))

    async def _position(self, partition: PartitionHistory) -> int:
        """Mostly where the last fetch ended; now and then anywhere between start and end."""
        position = self._positions.get(partition)
        if position is None:
            position = await list_offset(self, partition, EARLIEST)
        elif self.rng.random() < 0.2 and partition.start <= partition.high_watermark:
            position = self.rng.randint(partition.start, partition.high_watermark)
        return position


async def read_all(client: Client, partition: PartitionHistory) -> None:
    """Everything between the log start and the high watermark is there. Raises Refused, Disconnected."""
    offset = start = await list_offset(client, partition, EARLIEST)
    newest: dict[bytes, int] = {}
    batches = client.play.logs.batches
    while True:
        view = partition.view()
        asked = by_topic([(partition, offset, view)])
        response = await client.ask(fetch_request(asked, True, 0, 1 << 20), BY_ID)
        after = take_fetched(client.play, asked, True, response)
        if partition not in after:
            raise Refused
        end = after[partition]
        if end is None:
            offset = start = await list_offset(client, partition, EARLIEST)  # DeleteRecords was faster
            newest.clear()
            continue
        part = response.responses[0].partitions[0]
        for at in range(offset, end):
            if at in partition.promised:
                number, place = partition.promised[at]
                newest[batches[number].keys[place]] = at
        if end == offset or end >= part.high_watermark:
            partition.check_newest(start, end, newest)
            return
        offset = end


__all__ = ["Disconnected", "Reader", "Refused", "read_all"]
