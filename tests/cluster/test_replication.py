"""Partitions with several replicas, on simulated machines: what followers copy, and what leaders wait for."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.api.fetch import follower_session
from odradek.api.fetch.follower import FollowerFetch
from odradek.errors import ErrorCode
from odradek.records.record import Record, build_batch
from odradek.services.partitions import replication
from odradek.services.partitions.replication import Fetcher
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.cluster.clusters import Cluster, new_cluster, until

TOPIC = "t"


def run(seed: int, scenario: Callable[[Cluster], Coroutine[Any, Any, None]], **options: Any) -> None:
    world, cluster = new_cluster(seed, **options)

    async def main() -> None:
        await cluster.start()
        response = await cluster.ask(1, CreateTopicsRequest([CreatableTopic(TOPIC, 1, 3)]), 7)
        assert [topic.error_code for topic in response.topics] == [0]
        await until(lambda: all(TOPIC in cluster.image(node_id).topics for node_id in cluster.machines))
        await scenario(cluster)

    world.run(main())


def partition(cluster: Cluster, node_id: int = 1) -> Any:
    return cluster.image(node_id).topics[TOPIC].partitions[0]


def replica(cluster: Cluster, node_id: int) -> Any:
    node = cluster.machines[node_id].node
    assert node is not None
    return node.replicas.present(TOPIC, 0)


async def produce(
    cluster: Cluster, node_id: int, *values: bytes, acks: int = -1, timeout_ms: int = 5000
) -> Any:
    batch = bytes(
        build_batch([Record(at, 1_700_000_000_000, b"k", value) for at, value in enumerate(values)])
    )
    topic_id = cluster.image(node_id).topics[TOPIC].id
    data = TopicProduceData(topic_id, TOPIC, [PartitionProduceData(0, batch)])
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data])
    response = await cluster.ask(node_id, request, 13)
    return response.responses[0].partition_responses[0]


def log_bytes(cluster: Cluster, node_id: int) -> bytes:
    log = replica(cluster, node_id).log
    return b"".join(bytes(segment.log.read_at(0, segment.size)) for segment in log.segments if segment.size)


def test_followers_have_the_same_bytes_on_disk() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = partition(cluster).leader
        for number in range(5):
            assert (await produce(cluster, leader, b"%d" % number)).base_offset == number
        assert all(replica(cluster, node_id).log.synced_offset == 5 for node_id in (1, 2, 3)), "acks=all"
        await until(lambda: all(replica(cluster, node_id).high_watermark == 5 for node_id in (1, 2, 3)))
        assert log_bytes(cluster, 1) == log_bytes(cluster, 2) == log_bytes(cluster, 3)

    run(1, scenario)


def test_a_record_is_acknowledged_once_every_in_sync_replica_has_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = partition(cluster).leader
        follower = next(node_id for node_id in (1, 2, 3) if node_id != leader)
        network = cluster.world.network
        network.cut(f"node{follower}", f"node{leader}")
        late = await produce(cluster, leader, b"waits", timeout_ms=700)
        assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert replica(cluster, leader).high_watermark == 0
        network.heal(f"node{follower}", f"node{leader}")
        await until(lambda: replica(cluster, leader).high_watermark == 1)
        assert replica(cluster, follower).log.synced_offset == 1

    run(2, scenario)


def test_a_follower_that_was_away_catches_up() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = partition(cluster).leader
        follower = next(node_id for node_id in (1, 2, 3) if node_id != leader)
        await produce(cluster, leader, b"before")
        cluster.machines[follower].cut_power()
        assert (await produce(cluster, leader, b"meanwhile", acks=1)).error_code == 0
        await cluster.start(follower)
        await until(
            lambda: replica(cluster, follower) is not None and replica(cluster, follower).log.end_offset == 2
        )
        await until(lambda: log_bytes(cluster, follower) == log_bytes(cluster, leader))

    run(3, scenario)


def test_a_leader_that_was_killed_does_not_go_on_in_its_epoch_while_it_starts() -> None:
    """It listens before it is registered, and until then the metadata still says that it leads."""

    async def scenario(cluster: Cluster) -> None:
        leader = partition(cluster).leader
        machine = cluster.machines[leader]
        before = cluster.image(leader).brokers[leader].incarnation_id
        other = next(node_id for node_id in (1, 2, 3) if node_id != leader)
        machine.cut_power()
        starting = cluster.world.spawn(machine.start())
        led_in_its_old_life = []
        while not starting.done():
            if machine.node is not None and replica(cluster, leader) is not None:
                is_new = cluster.image(leader).brokers[leader].incarnation_id != before
                led_in_its_old_life.append(replica(cluster, leader).leader is not None and not is_new)
            await asyncio.sleep(0.001)
        assert led_in_its_old_life and not any(led_in_its_old_life)
        await until(lambda: partition(cluster, other).leader_epoch > 0)

    run(4, scenario)


def test_idle_partitions_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Followers go on asking, and leaders answering; neither looks at what has not changed."""
    monkeypatch.setattr(follower_session, "LOOK_AT_ALL_MS", 1_000_000)
    counts: Counter[str] = Counter()
    count_calls(monkeypatch, counts, Fetcher, "_next_frame")
    count_calls(monkeypatch, counts, Fetcher, "_position")
    count_calls(monkeypatch, counts, FollowerFetch, "read_partition")

    async def scenario(cluster: Cluster) -> None:
        response = await cluster.ask(1, CreateTopicsRequest([CreatableTopic("wide", 60, 3)]), 7)
        assert response.topics[0].error_code == 0
        await asyncio.sleep(10)
        counts.clear()
        await asyncio.sleep(5)
        assert counts["_next_frame"] > 20
        assert counts["_position"] == counts["read_partition"] == 0
        await produce(cluster, partition(cluster).leader, b"one")
        assert 0 < counts["_position"] <= 8 and 0 < counts["read_partition"] <= 16

    run(4, scenario)


def count_calls(monkeypatch: pytest.MonkeyPatch, counts: Counter[str], owner: Any, name: str) -> None:
    method = getattr(owner, name)

    def counted(*arguments: Any) -> Any:
        counts[name] += 1
        return method(*arguments)

    monkeypatch.setattr(owner, name, counted)


def test_a_partition_that_cannot_go_on_is_named_again_after_its_pause() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = partition(cluster).leader
        follower = next(node_id for node_id in (1, 2, 3) if node_id != leader)
        cluster.machines[follower].fill_disk()
        assert (await produce(cluster, leader, b"x" * 5000, acks=1)).error_code == 0
        await asyncio.sleep(3)
        assert replica(cluster, follower).log.end_offset == 0
        cluster.machines[follower].clear_disk()
        await until(lambda: replica(cluster, follower).log.end_offset == 1)

    run(5, scenario)


def test_a_follower_that_is_refused_asks_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leader does not know yet that it leads, because it does not hear the controller."""
    asked: list[tuple[int, int]] = []  # by a follower, of a leader
    fetch = replication.Fetcher._next_frame

    def note(fetcher: Any) -> Any:
        frame = fetch(fetcher)
        if frame is not None:
            asked.append((fetcher._replication.node_id, fetcher._leader_id))
        return frame

    monkeypatch.setattr(replication.Fetcher, "_next_frame", note)

    async def scenario(cluster: Cluster) -> None:
        before = partition(cluster)
        new_leader = next(node_id for node_id in before.replicas if node_id != before.leader)
        follower = next(node_id for node_id in (1, 2, 3) if node_id not in (before.leader, new_leader))
        cluster.machines[before.leader].cut_power()
        await asyncio.sleep(5)  # of the 9 that its session lasts: that of the new leader is to last longer
        cluster.world.network.cut(f"node{new_leader}", "node4")
        await until(lambda: partition(cluster, follower).leader == new_leader)
        asked.clear()
        await asyncio.sleep(3)
        assert partition(cluster, follower).leader == new_leader, "or it was asked for something else"
        assert partition(cluster, new_leader).leader == before.leader
        assert 2 <= asked.count((follower, new_leader)) <= 4, "once in replica.fetch.backoff.ms"

    run(4, scenario, controllers=(4,), brokers=(1, 2, 3))
