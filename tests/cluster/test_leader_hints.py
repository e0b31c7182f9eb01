"""Whoever refuses a partition because another broker leads it says which one, and where it is (KIP-951)."""

import asyncio
from typing import Any

from odradek.errors import ErrorCode
from odradek.records.record import Record, build_batch
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.cluster.clusters import Cluster, until
from tests.cluster.test_follower_fetching import LONG_MS, RACKS, fetch_request, others, run
from tests.cluster.test_replication import TOPIC, partition, replica

REFUSAL = ErrorCode.NOT_LEADER_OR_FOLLOWER
NO_HINT = -1, -1, []


def address(node_id: int) -> list[tuple[int, str, int, str]]:
    return [(node_id, f"node{node_id}", 9092, RACKS[node_id])]


def told(response: Any, partition: Any) -> tuple[Any, ...]:
    """Its error, the leader, the leader's epoch, and all addresses."""
    nodes = [(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]
    hint = partition.current_leader
    return ErrorCode(partition.error_code), hint.leader_id, hint.leader_epoch, nodes


async def fetch(cluster: Cluster, node_id: int, version: int, **options: Any) -> tuple[Any, ...]:
    request = fetch_request(cluster, node_id, 0, version=version, **options)
    response = await cluster.ask(node_id, request, version)
    return told(response, response.responses[0].partitions[0])


async def produce(cluster: Cluster, node_id: int, version: int) -> tuple[Any, ...]:
    batch = bytes(build_batch([Record(0, 1_700_000_000_000, None, b"value")]))
    topic_id = cluster.image(node_id).topics[TOPIC].id
    data = TopicProduceData(topic_id, TOPIC, [PartitionProduceData(0, batch)])
    response = await cluster.ask(node_id, ProduceRequest(None, -1, LONG_MS, [data]), version)
    return told(response, response.responses[0].partition_responses[0])


def test_a_fetch() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader, (follower,) = partition(cluster).leader, others(cluster)
        stranger = 6 - leader - follower
        epoch = partition(cluster).leader_epoch
        assert await fetch(cluster, stranger, 16) == (REFUSAL, leader, epoch, address(leader))
        assert await fetch(cluster, stranger, 15) == (REFUSAL, *NO_HINT)
        unknown = ErrorCode.UNKNOWN_LEADER_EPOCH
        assert await fetch(cluster, leader, 16, epoch=epoch + 1) == (unknown, *NO_HINT)
        waiting = cluster.world.spawn(fetch(cluster, leader, 17, epoch=epoch, max_wait_ms=LONG_MS))
        await asyncio.sleep(1)  # of virtual time, in which it arrives
        await cluster.machines[leader].stop()
        now = partition(cluster, follower).leader_epoch
        fenced = (ErrorCode.FENCED_LEADER_EPOCH, follower, now, address(follower))
        assert await waiting == fenced, "told when it stops to lead"
        assert await fetch(cluster, follower, 16, epoch=epoch) == fenced

    run(scenario, replicas=2)


def test_a_produce() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader, (follower, other) = partition(cluster).leader, others(cluster)
        epoch = partition(cluster).leader_epoch
        assert await produce(cluster, follower, 10) == (REFUSAL, leader, epoch, address(leader))
        assert await produce(cluster, follower, 9) == (REFUSAL, *NO_HINT)
        cluster.world.network.cut(f"node{other}", f"node{leader}")  # it is in sync: nothing is committed
        waiting = cluster.world.spawn(produce(cluster, leader, 13))
        await until(lambda: replica(cluster, follower).log.end_offset == 1)
        await cluster.machines[leader].stop()
        code, new_leader, new_epoch, nodes = await waiting
        assert (code, nodes) == (REFUSAL, address(new_leader)), "told when it stops to lead"
        assert new_leader != leader and new_epoch > epoch

    run(scenario)
