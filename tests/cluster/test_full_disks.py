"""A disk without room, on simulated machines: who leads, what is refused, and what goes on."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from odradek.errors import ErrorCode
from odradek.host.simulated import DISK_BYTES
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.cluster.clusters import Cluster, until
from tests.cluster.test_replication import TOPIC, partition, produce, replica, run

LITTLE = 1_000_000  # below the reserve, and enough for what a broker has to write
BROKERS = (1, 2, 3)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """A simulated world keeps its log lines, from WARNING on, to itself."""
    logger = logging.getLogger("odradek")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


def others(node_id: int) -> list[int]:
    return [other for other in BROKERS if other != node_id]


def fill(cluster: Cluster, *node_ids: int, free_bytes: int = LITTLE) -> None:
    assert free_bytes < DISK_BYTES // 20
    for node_id in node_ids:
        cluster.machines[node_id].fill_disk(free_bytes)


@pytest.mark.parametrize("free_bytes", [0, LITTLE])
def test_the_leader_gives_its_leadership_away_and_comes_back(
    free_bytes: int, logged: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = partition(cluster).leader
        other = others(leader)[0]
        assert (await produce(cluster, leader, b"before")).error_code == 0
        fill(cluster, leader, free_bytes=free_bytes)
        await until(lambda: partition(cluster, other).leader not in (leader, -1), 5.0)
        after = partition(cluster, other)
        assert sorted(after.isr) == others(leader)
        assert (await produce(cluster, after.leader, b"meanwhile")).error_code == 0
        assert not cluster.image(other).brokers[leader].is_fenced
        cluster.machines[leader].clear_disk()
        await until(lambda: sorted(partition(cluster, other).isr) == [1, 2, 3], 30.0)
        assert replica(cluster, leader).log.end_offset == 2
        assert not cluster.image(other).brokers[leader].is_full

    run(3, scenario)
    assert "1 leadership goes to other in-sync replicas" in logged.text


def test_a_follower_says_why_it_lags(logged: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = partition(cluster).leader
        follower = others(leader)[0]
        fill(cluster, follower)
        await until(lambda: follower not in partition(cluster, leader).isr, 5.0)
        for _ in range(3):
            assert (await produce(cluster, leader, b"x")).error_code == 0
        await until(lambda: "lags behind its leader" in logged.text, 10.0)
        assert replica(cluster, follower).log.end_offset < 3
        cluster.machines[follower].clear_disk()
        await until(lambda: follower in partition(cluster, leader).isr, 30.0)

    run(4, scenario)
    assert logged.text.count("lags behind its leader") == 1, "repeats are counted"


def test_a_cluster_without_room_refuses_records_and_still_commits_offsets_and_deletes_topics() -> None:
    async def commit(cluster: Cluster, coordinator: int) -> int:
        topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[OffsetCommitRequestPartition(0, 1)])
        response = await cluster.ask(coordinator, OffsetCommitRequest("group", -1, topics=[topic]), 8)
        return int(response.topics[0].partitions[0].error_code)

    async def find_coordinator(cluster: Cluster) -> int:
        async with asyncio.timeout(10.0):
            while True:
                response = await cluster.ask(1, FindCoordinatorRequest(key="group"), 3)
                if response.error_code == ErrorCode.NONE and await commit(cluster, response.node_id) == 0:
                    return int(response.node_id)
                await asyncio.sleep(0.1)

    async def scenario(cluster: Cluster) -> None:
        leader = partition(cluster).leader
        assert (await produce(cluster, leader, b"before")).error_code == ErrorCode.NONE
        coordinator = await find_coordinator(cluster)
        fill(cluster, *BROKERS)
        await until(lambda: all(broker.is_full for broker in cluster.image(1).brokers.values()), 10.0)
        assert partition(cluster).leader == leader, "nobody has more room"
        assert (await produce(cluster, leader, b"refused")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await commit(cluster, coordinator) == ErrorCode.NONE
        created = await cluster.ask(1, CreateTopicsRequest([CreatableTopic("other", 1, 3)]), 7)
        assert [topic.error_code for topic in created.topics] == [ErrorCode.NONE]
        deleted = await cluster.ask(1, DeleteTopicsRequest(topic_names=["other"]), 5)
        assert [topic.error_code for topic in deleted.responses] == [ErrorCode.NONE]
        for machine in cluster.machines.values():
            machine.clear_disk()
        await until(lambda: not any(broker.is_full for broker in cluster.image(1).brokers.values()), 30.0)
        assert (await produce(cluster, leader, b"after")).error_code == ErrorCode.NONE

    run(5, scenario)
