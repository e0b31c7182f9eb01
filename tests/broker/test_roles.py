"""Tests of a broker's responses for a partition that it does not lead, and what becomes of those who waited when it
did.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.api.fetch.consumer import ConsumerFetch
from odradek.coordinators.routing import partition_of
from odradek.errors import ErrorCode
from odradek.metadata.image import NO_LEADER
from odradek.metadata.records import PartitionChangeRecord
from odradek.model import OFFSETS_TOPIC
from odradek.records.batch import read_header
from odradek.records.record import Record, build_batch
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.in_process import InProcess
from tests.broker.test_crash_consistency import live
from tests.broker.test_durability import disk_with
from tests.broker.test_group_availability import commit, committed, find

TOPIC = "t"
SETTINGS = {"offsets.topic.num.partitions": "2"}


def run(data_dir: Path, scenario: Callable[[InProcess], Awaitable[None]]) -> None:
    async def main() -> None:
        files = SimulatedFiles()
        files.make_directory(str(data_dir))
        async with InProcess(str(data_dir), files, SETTINGS) as broker:
            await scenario(broker)

    asyncio.run(main())


def elect(broker: InProcess, topic: str, leader: int, index: int = 0) -> None:
    """The controller elects a leader, or finds none."""
    metadata = broker.broker.metadata
    metadata._commit([PartitionChangeRecord(index, metadata.image.topics[topic].id, leader=leader)])


def fetch_request(
    *, offset: int = 0, max_wait_ms: int = 0, partitions: int = 1, **session: int
) -> FetchRequest:
    wanted = [
        FetchPartition(index, fetch_offset=offset, partition_max_bytes=1 << 20) for index in range(partitions)
    ]
    topics = [FetchTopic(topic=TOPIC, partitions=wanted)]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=topics, **session)


async def produce(broker: InProcess) -> int:
    return int((await broker.produce(TOPIC, [(None, b"x")], acks=1)).error_code)


async def fetch(broker: InProcess) -> int:
    """Fetch as a client of a version that reads from leaders only."""
    return int((await broker.ask(fetch_request(), 10)).responses[0].partitions[0].error_code)


async def list_offsets(broker: InProcess, timestamp: int = -1) -> int:
    wanted = ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, timestamp=timestamp)])
    return int((await broker.ask(ListOffsetsRequest(-1, 0, [wanted]), 7)).topics[0].partitions[0].error_code)


async def delete_records(broker: InProcess) -> int:
    wanted = DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, 0)])
    return int((await broker.ask(DeleteRecordsRequest([wanted], 1000), 2)).topics[0].partitions[0].error_code)


async def offset_for_leader_epoch(broker: InProcess) -> int:
    wanted = OffsetForLeaderTopic(TOPIC, [OffsetForLeaderPartition(0, -1, 0)])
    return int(
        (await broker.ask(OffsetForLeaderEpochRequest(-2, [wanted]), 4)).topics[0].partitions[0].error_code
    )


async def describe_producers(broker: InProcess) -> int:
    wanted = DescribeProducersRequest([TopicRequest(TOPIC, [0])])
    return int((await broker.ask(wanted, 0)).topics[0].partitions[0].error_code)


@pytest.mark.parametrize(
    "ask", [produce, fetch, list_offsets, delete_records, offset_for_leader_epoch, describe_producers]
)
def test_needs_the_leader(tmp_path: Path, ask: Callable[[InProcess], Awaitable[int]]) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        assert await ask(broker) == 0
        end_offset = broker.broker.replicas.get(TOPIC, 0).log.end_offset
        elect(broker, TOPIC, NO_LEADER)
        assert await ask(broker) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert broker.broker.replicas.get(TOPIC, 0).log.end_offset == end_offset
        elect(broker, TOPIC, broker.broker.node_id)
        assert await ask(broker) == 0

    run(tmp_path, scenario)


def test_a_partition_that_is_on_other_brokers_alone_is_known(tmp_path: Path) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        metadata = broker.broker.metadata
        moved = PartitionChangeRecord(0, metadata.image.topics[TOPIC].id, leader=7, isr=[7], replicas=[7])
        broker.broker._partitions.stop_opening()
        metadata._commit([moved])
        assert await list_offsets(broker) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await produce(broker) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(tmp_path, scenario)


# --- coordinators ---


def test_a_coordinator_goes_with_the_leader_and_loads_where_it_comes_back(tmp_path: Path) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        assert await find(broker, "g") == 0
        assert await commit(broker, "g", TOPIC, 5) == 0
        index = partition_of("g", 2)
        elect(broker, OFFSETS_TOPIC, NO_LEADER, index)
        assert await commit(broker, "g", TOPIC, 6) == ErrorCode.NOT_COORDINATOR
        assert (await committed(broker, "g", TOPIC))[0] == ErrorCode.NOT_COORDINATOR
        elect(broker, OFFSETS_TOPIC, broker.broker.node_id, index)
        while (found := await committed(broker, "g", TOPIC))[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await asyncio.sleep(0)
        assert found == (0, 5)
        assert await commit(broker, "g", TOPIC, 7) == 0

    run(tmp_path, scenario)


# --- who waits when an epoch ends ---


def hold_syncs(broker: InProcess) -> Callable[[], None]:
    """Nothing comes to disk until the returned function is called."""
    flusher = broker.broker._flusher
    appended, held = flusher.appended, []
    flusher.appended = held.append  # type: ignore[method-assign]

    def release() -> None:
        flusher.appended = appended  # type: ignore[method-assign]
        for replica in held:
            appended(replica)

    return release


async def some_turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("regained", [False, True])
def test_an_acknowledgement_does_not_outlive_its_epoch(tmp_path: Path, regained: bool) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        release = hold_syncs(broker)
        producing = asyncio.create_task(broker.produce(TOPIC, [(None, b"x")]))
        await some_turns()
        assert not producing.done()
        elect(broker, TOPIC, NO_LEADER)
        if regained:
            elect(broker, TOPIC, broker.broker.node_id)
        assert (await producing).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        release()
        await some_turns()
        assert broker.broker.replicas.get(TOPIC, 0).log.synced_offset == 1

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("leader", "version", "code"),
    [
        (NO_LEADER, 10, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (NO_LEADER, 12, ErrorCode.NONE),  # it may read from a follower
        (1, 12, ErrorCode.NONE),
    ],
)
def test_a_parked_fetch_hears_of_the_end_of_an_epoch(
    tmp_path: Path, leader: int, version: int, code: ErrorCode
) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        fetching = asyncio.create_task(broker.ask(fetch_request(max_wait_ms=60_000), version))
        await some_turns()
        elect(broker, TOPIC, leader if leader == NO_LEADER else broker.broker.node_id)
        assert (await fetching).responses[0].partitions[0].error_code == code

    run(tmp_path, scenario)


# --- where the high watermark starts ---


@pytest.mark.parametrize(("replicas", "high_watermark"), [([1], 5), ([1, 2], 3)])
def test_the_high_watermark_after_a_crash(tmp_path: Path, replicas: list[int], high_watermark: int) -> None:
    """The checkpoint is old. The only replica has all that was ever acknowledged, and shows it at once; where there
    is another one, nobody knows yet what that one has."""
    files = disk_with(str(tmp_path))

    async def before(broker: InProcess) -> None:
        await broker.create_topic(TOPIC)
        await broker.produce(TOPIC, [(None, b"x")] * 3)
        broker.broker._maintenance.checkpoint()
        assert (await broker.produce(TOPIC, [(None, b"y")] * 2)).error_code == 0
        metadata = broker.broker.metadata
        topic_id = metadata.image.topics[TOPIC].id
        metadata._commit([PartitionChangeRecord(0, topic_id, replicas=replicas, isr=replicas)])

    async def after(broker: InProcess) -> None:
        metadata = broker.broker.metadata
        if len(replicas) > 1:  # who was killed is not in sync with others any more, until it has caught up
            assert metadata.image.topics[TOPIC].partitions[0].leader == NO_LEADER
            topic_id = metadata.image.topics[TOPIC].id
            metadata._commit([PartitionChangeRecord(0, topic_id, leader=1, isr=replicas)])
        leader = broker.broker.replicas.leader(TOPIC, 0)
        assert (leader.log.end_offset, leader.high_watermark) == (5, high_watermark)
        found = (await broker.ask(fetch_request(), 12)).responses[0].partitions[0]
        assert (found.error_code, found.high_watermark) == (0, high_watermark)

    live(str(tmp_path), files, before)
    files.crash()
    live(str(tmp_path), files, after)


# --- what a wake-up costs ---

MANY = 400


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions that were looked at, by index."""
    read, looked = ConsumerFetch.read_partition, []

    def counted(self: ConsumerFetch, wanted: Any, size_so_far: int) -> Any:
        looked.append(wanted.asked.partition)
        return read(self, wanted, size_so_far)

    monkeypatch.setattr(ConsumerFetch, "read_partition", counted)
    return looked


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("count", [MANY, 10_000])
def test_a_parked_fetch_looks_only_at_what_changed(
    tmp_path: Path, looks: list[int], count: int, incremental: bool
) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.ask(CreateTopicsRequest([CreatableTopic(TOPIC, count, 1)]), 7)
        request = fetch_request(max_wait_ms=60_000, partitions=count)
        if incremental:
            first = await broker.ask(fetch_request(partitions=count, session_epoch=0), 12)
            request = FetchRequest(
                max_wait_ms=60_000, min_bytes=200, session_id=first.session_id, session_epoch=1
            )
        looks.clear()
        fetching = asyncio.create_task(broker.ask(request, 12))
        while not broker.broker.replicas.leader(TOPIC, count - 1).has_waiters:
            await asyncio.sleep(0)
        assert sorted(looks) == list(range(count))
        looks.clear()
        await broker.produce(TOPIC, [(None, b"x" * 10)])
        if incremental:  # which is too little
            assert looks == [0] and not fetching.done()
            await broker.produce(TOPIC, [(None, b"x" * 200)])
        response = await fetching
        assert looks == [0] * (2 if incremental else 1)
        answered = response.responses[0].partitions
        assert len(answered) == (1 if incremental else count)
        assert [found.high_watermark for found in answered if found.records] == [2 if incremental else 1]

    run(tmp_path, scenario)


def test_a_fetch_that_times_out_looks_at_nothing_again(tmp_path: Path, looks: list[int]) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.ask(CreateTopicsRequest([CreatableTopic(TOPIC, MANY, 1)]), 7)
        response = await broker.ask(fetch_request(max_wait_ms=1, partitions=MANY), 12)
        assert len(response.responses[0].partitions) == len(looks) == MANY
        assert not any(
            replica.leader.has_waiters for replica in broker.broker.replicas if replica.leader is not None
        )

    run(tmp_path, scenario)


def test_what_changes_while_a_large_fetch_is_read_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: list[int]
) -> None:
    """Its first partitions were read turns ago when it begins to wait: nobody would wake it for what came since."""
    monkeypatch.setattr("odradek.api.fetch.handler.MANY_PARTITIONS", 1)

    async def scenario(broker: InProcess) -> None:
        await broker.ask(CreateTopicsRequest([CreatableTopic(TOPIC, 3, 1)]), 7)
        leader = broker.broker.replicas.leader(TOPIC, 0)
        begin_wait = ConsumerFetch.begin_wait

        def let_others_append(self: ConsumerFetch) -> None:
            batch = build_batch([Record(0, 0, None, b"x")])
            leader.append(batch, read_header(batch), 0)
            leader.log.sync()
            leader.maybe_advance_high_watermark()
            begin_wait(self)

        monkeypatch.setattr(ConsumerFetch, "begin_wait", let_others_append)
        response = await broker.ask(fetch_request(max_wait_ms=60_000, partitions=3), 12)
        assert [found.high_watermark for found in response.responses[0].partitions if found.records] == [1]

    run(tmp_path, scenario)
