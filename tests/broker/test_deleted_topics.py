"""Topics deleted while clients wait for them: every request is answered once, and nothing of a topic comes back."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from odradek.controller.topics import create_topics
from odradek.errors import ErrorCode
from odradek.metadata.delta import apply_records
from odradek.metadata.records import RemoveTopicRecord
from odradek.replication.leader import Leader
from odradek.replication.replica import Replica
from odradek.services.partitions import local_partitions
from odradek.serving.request import Request
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.broker.in_process import InProcess
from tests.broker.test_disk_faults import FaultyFiles, response_of, run_on
from tests.protocol.raw import Raw, batch, produce_request
from tests.support import running_broker

TOPICS = ("a", "b", "c")
PARTITIONS = 3
LATEST_FETCH, FETCH_BY_NAME = 17, 12
UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class UnrenamedFiles(FaultyFiles):
    """Directories of these names cannot be renamed."""

    def __init__(self) -> None:
        super().__init__()
        self.unrenamed: set[str] = set()

    def heal(self) -> None:
        super().heal()
        self.unrenamed = set()

    def rename(self, old: str, new: str) -> None:
        if os.path.basename(old) in self.unrenamed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), old)
        super().rename(old, new)


def run(data_dir: Path, scenario: Callable[[InProcess, UnrenamedFiles], Awaitable[None]]) -> None:
    run_on(UnrenamedFiles(), data_dir, scenario)


async def create_all(broker: InProcess) -> None:
    wanted = [CreatableTopic(name, PARTITIONS, 1) for name in TOPICS]
    response = await broker.ask(CreateTopicsRequest(wanted), 7)
    assert [topic.error_code for topic in response.topics] == [0] * len(TOPICS)


async def produce_to_all(broker: InProcess, value: bytes) -> None:
    for name in TOPICS:
        for index in range(PARTITIONS):
            response = response_of(await broker.ask(produce_request(name, batch(value), partition=index), 9))
            assert response.error_code == 0


async def delete_all(broker: InProcess) -> list[int]:
    states = [DeleteTopicState(name) for name in TOPICS]
    response = await broker.ask(DeleteTopicsRequest(states, timeout_ms=5000), 6)
    return [topic.error_code for topic in response.responses]


def fetch_request_of(topic_ids: Mapping[str, UUID], offset: int, max_wait_ms: int = 60_000) -> FetchRequest:
    """Every partition of the topics, parked if they end at this offset."""
    topics = [
        FetchTopic(
            topic=name,
            topic_id=topic_id,
            partitions=[
                FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
                for index in range(PARTITIONS)
            ],
        )
        for name, topic_id in topic_ids.items()
    ]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics)


def fetch_all(broker: InProcess, offset: int, version: int, max_wait_ms: int = 60_000) -> asyncio.Future[Any]:
    topic_ids = {name: broker.broker.metadata.image.topics[name].id for name in TOPICS}
    return asyncio.ensure_future(broker.ask(fetch_request_of(topic_ids, offset, max_wait_ms), version))


def end_offsets(broker: InProcess) -> list[int]:
    replicas = broker.broker.replicas
    return [replicas.get(name, index).log.end_offset for name in TOPICS for index in range(PARTITIONS)]


def leaders(broker: InProcess) -> list[Leader]:
    return [replica.leader for replica in broker.broker.replicas if replica.leader is not None]


def logs_of_topics(data_dir: Path) -> set[str]:
    """Directories under a name that a topic would use: those being removed are called otherwise."""
    return {path.name for name in TOPICS for path in data_dir.glob(f"{name}-*") if path.name[2:].isdecimal()}


@pytest.mark.parametrize("version", [FETCH_BY_NAME, LATEST_FETCH])
def test_parked_fetches_are_answered_once_and_the_topics_are_gone(tmp_path: Path, version: int) -> None:
    """The Fetch was answered once for each topic, and the second time broke the deletion off half-way."""

    async def scenario(broker: InProcess, files: UnrenamedFiles) -> None:
        await create_all(broker)
        await produce_to_all(broker, b"old")
        parked = [fetch_all(broker, 1, version) for _ in range(5)]
        await asyncio.sleep(0)
        assert not any(fetch.done() for fetch in parked)
        assert await delete_all(broker) == [0, 0, 0]
        for fetch in parked:
            response = await fetch
            codes = {found.error_code for topic in response.responses for found in topic.partitions}
            assert codes & {*UNKNOWN}, "the consumer hears that its topics are gone"
        assert logs_of_topics(tmp_path) == set()
        await create_all(broker)
        assert end_offsets(broker) == [0] * 9, "no record of the old topics came back"
        await produce_to_all(broker, b"new")
        assert [record.value for record in broker.records("a")] == [b"new"]

    run(tmp_path, scenario)


def test_a_fetch_that_timed_out_hears_no_more(tmp_path: Path) -> None:
    async def scenario(broker: InProcess, files: UnrenamedFiles) -> None:
        await create_all(broker)
        response = await fetch_all(broker, 0, LATEST_FETCH, max_wait_ms=1)
        assert response.error_code == 0
        assert not any(leader.has_waiters for leader in leaders(broker))
        assert await delete_all(broker) == [0, 0, 0]

    run(tmp_path, scenario)


def test_a_fetch_whose_connection_closed_hears_no_more(tmp_path: Path) -> None:
    """Not even if its topics are deleted while the partition that woke the closing one still has others to wake."""

    async def scenario(broker: InProcess, files: UnrenamedFiles) -> None:
        await create_all(broker)
        requests: list[Request] = []
        broker.on_request = requests.append
        parked = [fetch_all(broker, 0, LATEST_FETCH) for _ in range(3)]
        await asyncio.sleep(0)
        waiters = broker.broker.replicas.leader("a", 0)._high_watermark_waiters
        waiters._waiters = {lambda _: requests[1].abandon(): None, **waiters._waiters}
        assert await delete_all(broker) == [0, 0, 0]
        await asyncio.gather(parked[0], parked[2])
        assert not parked[1].done()
        parked[1].cancel()

    run(tmp_path, scenario)


def test_several_connections_that_wait_for_topics_deleted_together(tmp_path: Path) -> None:
    """Through sockets: no connection is lost, and no record of the old topics comes back."""
    with running_broker(tmp_path) as broker, Raw(broker.bootstrap) as admin, ExitStack() as stack:
        consumers = [stack.enter_context(Raw(broker.bootstrap)) for _ in range(4)]
        for _ in range(3):
            ids = {name: admin.create(name, PARTITIONS) for name in TOPICS}
            for name in TOPICS:
                for index in range(PARTITIONS):
                    assert admin.produce(name, batch(b"x"), partition=index).base_offset == 0
            for consumer in consumers:
                consumer.send(fetch_request_of(ids, 1), LATEST_FETCH)
                consumer.send(fetch_request_of({"b": ids["b"]}, 1), LATEST_FETCH)
            states = [DeleteTopicState(name) for name in TOPICS]
            response = admin.ask(DeleteTopicsRequest(states, timeout_ms=5000))
            assert [topic.error_code for topic in response.responses] == [0, 0, 0]
            for consumer in consumers:
                for _ in range(2):
                    response = consumer.receive()
                    codes = {part.error_code for topic in response.responses for part in topic.partitions}
                    assert codes & {*UNKNOWN}


@pytest.mark.plants_traceback
def test_a_waiter_that_raises_does_not_stop_the_deletion(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(broker: InProcess, files: UnrenamedFiles) -> None:
        await create_all(broker)
        await produce_to_all(broker, b"old")

        def broken(error: ErrorCode) -> None:
            raise ValueError("planted")

        for leader in leaders(broker):
            leader.when_high_watermark_moves(broken)
        parked = fetch_all(broker, 1, LATEST_FETCH)
        await asyncio.sleep(0)
        assert await delete_all(broker) == [0, 0, 0]
        await parked
        assert logs_of_topics(tmp_path) == set()

    run(tmp_path, scenario)
    assert sum(1 for record in caplog.records if record.exc_info) == 9


@pytest.mark.plants_traceback
def test_a_listener_that_raises_fails_neither_the_request_nor_the_other_listeners(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(broker: InProcess, files: UnrenamedFiles) -> None:
        heard: list[object] = []

        def broken(delta: object) -> None:
            raise ValueError("planted")

        metadata = broker.broker.metadata
        while not metadata.image.controllers:  # that registers by itself
            await metadata.quorum.changed()
        metadata._listeners = (broken, *metadata._listeners, heard.append)
        await create_all(broker)
        await produce_to_all(broker, b"x")
        assert await delete_all(broker) == [0, 0, 0]
        assert logs_of_topics(tmp_path) == set()
        assert len(heard) == 2

    run(tmp_path, scenario)
    assert sum(1 for record in caplog.records if record.exc_info) == 2


@pytest.mark.plants_traceback
def test_who_is_told_of_a_removed_partition_may_raise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: InProcess, files: UnrenamedFiles) -> None:
        def broken(replica: Replica) -> None:
            raise ValueError("planted")

        await create_all(broker)
        await produce_to_all(broker, b"x")
        monkeypatch.setattr(broker.broker._compactor, "removed", broken)
        assert await delete_all(broker) == [0, 0, 0]
        assert logs_of_topics(tmp_path) == set()

    run(tmp_path, scenario)
    assert sum(1 for record in caplog.records if record.exc_info) == 9


def test_a_log_that_cannot_be_removed_does_not_serve_the_next_topic_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_partitions, "REQUEST_RETRY_SECONDS", 0)

    async def scenario(broker: InProcess, files: UnrenamedFiles) -> None:
        await create_all(broker)
        await produce_to_all(broker, b"old")
        files.unrenamed = {"a-1", "b-0"}
        assert await delete_all(broker) == [0, 0, 0]
        assert logs_of_topics(tmp_path) == {"a-1", "b-0"}
        await create_all(broker)
        codes = []
        for index in range(PARTITIONS):
            request = produce_request("a", batch(b"new"), partition=index)
            codes.append(response_of(await broker.ask(request, 9)).error_code)
        assert codes[0] == codes[2] == 0
        assert codes[1] != 0, "the old log is not opened for the new topic"
        files.unrenamed = set()
        request = produce_request("a", batch(b"new"), partition=1)
        assert response_of(await broker.ask(request, 9)).base_offset == 0
        assert end_offsets(broker) == [1, 1, 1, 0, 0, 0, 0, 0, 0]
        broker.broker._partitions.retry_failed()
        for _ in range(10):
            await asyncio.sleep(0)
        for partition in broker.broker.replicas:
            topic = broker.broker.metadata.image.topics[partition.topic_partition.topic]
            assert partition.topic_id == partition.log.topic_id == topic.id
        await broker.create_topic("other")  # what was removed once is not removed again
        broker.broker._partitions.retry_failed()
        assert len(logs_of_topics(tmp_path)) == 9

    run(tmp_path, scenario)


@pytest.mark.parametrize("retried_by", ["timer", "next change"])
def test_a_log_that_could_not_be_removed_is_removed_later(tmp_path: Path, retried_by: str) -> None:
    async def scenario(broker: InProcess, files: UnrenamedFiles) -> None:
        await create_all(broker)
        await produce_to_all(broker, b"old")
        files.unrenamed = {"a-0", "c-2"}
        assert await delete_all(broker) == [0, 0, 0]
        assert logs_of_topics(tmp_path) == {"a-0", "c-2"}
        if retried_by == "timer":
            broker.broker._partitions.retry_failed()
            assert logs_of_topics(tmp_path) == {"a-0", "c-2"}
            files.unrenamed = set()
            broker.broker._maintenance.checkpoint()
        else:
            files.unrenamed = set()
            await broker.create_topic("other")
        assert logs_of_topics(tmp_path) == set()

    run(tmp_path, scenario)


def test_a_topic_deleted_before_its_logs_are_there(tmp_path: Path) -> None:
    async def scenario(broker: InProcess, files: UnrenamedFiles) -> None:
        await create_all(broker)
        files.room_for_directories = 0
        for _ in range(10):
            await asyncio.sleep(0)
        assert await delete_all(broker) == [0, 0, 0]
        files.room_for_directories = 100
        broker.broker._partitions.retry_failed()
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(broker.broker.replicas) == 0
        assert logs_of_topics(tmp_path) == set()

    run(tmp_path, scenario)


def test_a_topic_deleted_and_created_in_one_change(tmp_path: Path) -> None:
    async def scenario(broker: InProcess, files: UnrenamedFiles) -> None:
        await create_all(broker)
        await produce_to_all(broker, b"old")
        parked = fetch_all(broker, 1, LATEST_FETCH)
        await asyncio.sleep(0)
        metadata = broker.broker.metadata
        old_id = metadata.image.topics["a"].id
        removal = RemoveTopicRecord(old_id)
        between, _ = apply_records(metadata.image, [removal], metadata.image.offset + 1, metadata.image.epoch)
        wanted = CreateTopicsRequest([CreatableTopic("a", PARTITIONS, 1)])
        creation, _ = create_topics(between, wanted, broker.broker.config, Random(1))
        metadata._commit([removal, *creation])
        assert metadata.image.topics["a"].id != old_id
        await parked
        assert end_offsets(broker) == [0, 0, 0, 1, 1, 1, 1, 1, 1]
        await produce_to_all(broker, b"new")
        assert [record.value for record in broker.records("a")] == [b"new"]

    run(tmp_path, scenario)


def test_applying_a_change_twice_changes_nothing(tmp_path: Path) -> None:
    async def scenario(broker: InProcess, files: UnrenamedFiles) -> None:
        deltas: list[Any] = []
        metadata = broker.broker.metadata
        metadata._listeners = (*metadata._listeners, deltas.append)
        await create_all(broker)
        await produce_to_all(broker, b"old")
        assert await delete_all(broker) == [0, 0, 0]
        await create_all(broker)
        await produce_to_all(broker, b"new")
        before = list(broker.broker.replicas)
        for delta in deltas:
            broker.broker._partitions.apply(delta)
        broker.broker._partitions.apply(deltas[-1])
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(broker.broker.replicas) == len(before)
        assert [partition.closed_with for partition in broker.broker.replicas] == [0] * 9

    run(tmp_path, scenario)


def test_deleted_with_a_produce_that_waits_for_its_sync_and_a_join_that_waits_for_its_group(
    tmp_path: Path,
) -> None:
    async def scenario(broker: InProcess, files: UnrenamedFiles) -> None:
        await create_all(broker)
        await broker.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        protocol = JoinGroupRequestProtocol("range", b"")
        join = JoinGroupRequest("g", 10_000, 60_000, "", None, "consumer", [protocol])
        joining = asyncio.ensure_future(broker.ask(join, 3))
        await asyncio.sleep(0)
        broker.broker._flusher._average_seconds = 1.0
        files.may_sync.clear()
        producing = [
            asyncio.ensure_future(broker.ask(produce_request(name, batch(b"x")), 9)) for name in TOPICS
        ]
        parked = [fetch_all(broker, 0, LATEST_FETCH) for _ in range(3)]
        await asyncio.sleep(0)
        names = [*TOPICS, "__consumer_offsets"]
        states = [DeleteTopicState(name) for name in names]
        deleted = await broker.ask(DeleteTopicsRequest(states, timeout_ms=5000), 6)
        assert [topic.error_code for topic in deleted.responses] == [0] * 4
        for waiting in producing:
            assert response_of(await waiting).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for fetch in parked:
            await fetch
        assert (await joining).error_code == ErrorCode.NOT_COORDINATOR
        files.may_sync.set()
        await create_all(broker)
        assert end_offsets(broker) == [0] * 9

    run(tmp_path, scenario)
