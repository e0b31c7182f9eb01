"""Three ways in which Kafka once lost or mixed up records, as scripts: KIP-101, KIP-279 and KIP-320.

Node 4 is the controller, and 1, 2 and 3 are brokers, so that a broker can be cut off from some of the others.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from odradek.errors import ErrorCode
from odradek.records.record import Record, build_batch, decode_batch
from odradek.records.walk import whole_batches
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.wire.messages.elect_leaders import ElectLeadersRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.cluster.clusters import Cluster, new_cluster, until
from tests.cluster.storm import SETTINGS

TOPIC = "t"
CONTROLLER = 4


def run(
    seed: int,
    replicas: list[int],
    scenario: Callable[[Cluster], Coroutine[Any, Any, None]],
    is_unclean: bool = False,
    **settings: str,
) -> None:
    """A topic of one partition with these replicas, the first of which leads."""
    quiet = {"auto.leader.rebalance.enable": "false", "replica.socket.timeout.ms": "60000"}
    world, cluster = new_cluster(
        seed, controllers=(CONTROLLER,), brokers=(1, 2, 3), settings={**SETTINGS, **quiet, **settings}
    )

    async def main() -> None:
        await cluster.start()
        configs = [
            CreatableTopicConfig("min.insync.replicas", "1"),
            CreatableTopicConfig("unclean.leader.election.enable", str(is_unclean).lower()),
        ]
        topic = CreatableTopic(TOPIC, -1, -1, [CreatableReplicaAssignment(0, replicas)], configs)
        response = await cluster.ask(1, CreateTopicsRequest([topic]), 7)
        assert [topic.error_code for topic in response.topics] == [0]
        await until(lambda: all(replica(cluster, node_id) is not None for node_id in replicas))
        await scenario(cluster)

    world.run(main())


def partition(cluster: Cluster, node_id: int = CONTROLLER) -> Any:
    return cluster.image(node_id).topics[TOPIC].partitions[0]


def replica(cluster: Cluster, node_id: int) -> Any:
    node = cluster.machines[node_id].node
    return None if node is None else node.replicas.present(TOPIC, 0)


def values(cluster: Cluster, node_id: int) -> list[bytes]:
    log = replica(cluster, node_id).log
    return [
        bytes(record.value or b"")
        for segment in log.segments
        for header, batch in whole_batches(memoryview(segment.log.read_at(0, segment.size)))
        for record in decode_batch(batch, header)
    ]


async def leads(cluster: Cluster, node_id: int, *followers: int) -> None:
    """Once this broker leads, and those that are named know it."""
    await until(lambda: replica(cluster, node_id).leader is not None and partition(cluster).leader == node_id)
    epoch = partition(cluster).leader_epoch
    await until(lambda: all(replica(cluster, other).leader_epoch == epoch for other in (node_id, *followers)))


async def in_sync(cluster: Cluster, *node_ids: int) -> None:
    await until(lambda: set(partition(cluster).isr) == set(node_ids))


async def write(cluster: Cluster, node_id: int, value: bytes, acks: int = 1, **producer: int) -> int:
    batch = bytes(build_batch([Record(0, 1_700_000_000_000, b"k", value)], **producer))
    data = TopicProduceData(cluster.image(node_id).topics[TOPIC].id, TOPIC, [PartitionProduceData(0, batch)])
    request = ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=[data])
    response = await cluster.ask(node_id, request, 13)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


def cut_off(cluster: Cluster, node_id: int) -> None:
    for other in cluster.machines:
        if other != node_id:
            cluster.world.network.cut_both_ways(f"node{node_id}", f"node{other}")


def heal(cluster: Cluster, node_id: int) -> None:
    for other in cluster.machines:
        if other != node_id:
            cluster.world.network.heal_both_ways(f"node{node_id}", f"node{other}")


async def fetch(cluster: Cluster, node_id: int, epoch: int, offset: int, last_epoch: int = -1) -> Any:
    topic = FetchTopic(cluster.image(node_id).topics[TOPIC].id)
    topic.partitions.append(FetchPartition(0, epoch, offset, last_epoch, partition_max_bytes=1 << 20))
    response = await cluster.ask(node_id, FetchRequest(max_wait_ms=0, topics=[topic]), 16)
    return response.responses[0].partitions[0]


def test_kip_101_a_follower_keeps_what_it_has_though_it_does_not_know_that_it_is_committed() -> None:
    """It restarts before it hears of the new high watermark. Cut to the one it knows, it would lead without the record
    once the leader is gone."""

    async def scenario(cluster: Cluster) -> None:
        assert await write(cluster, 1, b"m1", acks=-1) == 0
        await until(lambda: replica(cluster, 2).high_watermark == 1)
        assert await write(cluster, 1, b"m2", acks=-1) == 0
        assert replica(cluster, 2).high_watermark == 1, "it has not heard of it"
        cluster.machines[2].cut_power()
        await until(lambda: set(partition(cluster).isr) == {1})
        await cluster.start(2)
        await until(lambda: replica(cluster, 2) is not None and replica(cluster, 2).follower is not None)
        assert values(cluster, 2) == [b"m1", b"m2"]
        await in_sync(cluster, 1, 2)
        cluster.machines[1].cut_power()
        await leads(cluster, 2)
        assert values(cluster, 2) == [b"m1", b"m2"]
        assert await write(cluster, 2, b"m3", acks=-1) == 0

    run(1, [1, 2], scenario)


def test_kip_101_replicas_that_wrote_different_records_at_one_offset_find_that_out() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert await write(cluster, 1, b"m1", acks=-1) == 0
        cut_off(cluster, 1)
        assert await write(cluster, 1, b"m2") == 0
        await leads(cluster, 2)
        assert await write(cluster, 2, b"m3", acks=-1) == 0
        heal(cluster, 1)
        await in_sync(cluster, 1, 2)
        assert values(cluster, 1) == values(cluster, 2) == [b"m1", b"m3"]

    run(2, [1, 2], scenario)


def test_a_leader_whose_log_was_cut_takes_a_batch_again_that_was_cut_off() -> None:
    """It was never committed, so the producer sends it again: a duplicate of nothing."""

    async def scenario(cluster: Cluster) -> None:
        producer = {"producer_id": 7, "producer_epoch": 0}
        assert await write(cluster, 1, b"m1", acks=-1, base_sequence=0, **producer) == 0
        cut_off(cluster, 1)
        assert await write(cluster, 1, b"m2", base_sequence=1, **producer) == 0
        await leads(cluster, 2)
        heal(cluster, 1)
        await in_sync(cluster, 1, 2)
        assert values(cluster, 1) == [b"m1"]
        assert (await cluster.ask(2, ElectLeadersRequest(0, None), 2)).error_code == 0
        await leads(cluster, 1)
        assert await write(cluster, 1, b"m2", acks=-1, base_sequence=1, **producer) == 0
        assert values(cluster, 1) == values(cluster, 2) == [b"m1", b"m2"]

    run(6, [1, 2], scenario)


def test_after_an_unclean_election_a_former_leader_cuts_what_it_had_committed() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert await write(cluster, 1, b"m1", acks=-1) == 0
        await until(lambda: replica(cluster, 2).high_watermark == 1)
        cluster.machines[1].cut_power()
        await leads(cluster, 2)
        assert await write(cluster, 2, b"m2", acks=-1) == 0
        await cluster.machines[2].stop()
        await cluster.start(1)
        await leads(cluster, 1)
        assert await write(cluster, 1, b"x", acks=-1) == 0
        await cluster.start(2)
        await in_sync(cluster, 1, 2)
        assert values(cluster, 1) == values(cluster, 2) == [b"m1", b"x"]

    run(7, [1, 2], scenario, is_unclean=True)


def test_kip_279_a_follower_whose_last_epoch_the_leader_never_saw() -> None:
    """Leaders follow each other so quickly that nobody copies what the one before wrote."""

    async def scenario(cluster: Cluster) -> None:
        assert await write(cluster, 1, b"a", acks=-1) == 0
        cut_off(cluster, 1)
        assert await write(cluster, 1, b"b") == 0
        await leads(cluster, 2, 3)
        cut_off(cluster, 2)
        assert await write(cluster, 2, b"c") == 0
        await leads(cluster, 3)
        assert await write(cluster, 3, b"d", acks=-1) == 0
        epochs = [entry for entry, _ in replica(cluster, 3).log.leader_epochs.entries]
        assert replica(cluster, 2).log.leader_epochs.latest not in epochs
        for node_id in (1, 2):
            heal(cluster, node_id)
        await in_sync(cluster, 1, 2, 3)
        assert values(cluster, 1) == values(cluster, 2) == values(cluster, 3) == [b"a", b"d"]

    run(3, [1, 2, 3], scenario)


def test_kip_320_a_consumer_tells_a_former_leader_from_the_present_one() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert await write(cluster, 1, b"a", acks=-1) == 0
        old = partition(cluster).leader_epoch
        cut_off(cluster, 1)
        assert await write(cluster, 1, b"b") == 0
        await leads(cluster, 2)
        new = partition(cluster).leader_epoch
        assert await write(cluster, 2, b"c", acks=-1) == 0
        assert (await fetch(cluster, 1, new, 1)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await fetch(cluster, 2, old, 1)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await fetch(cluster, 2, new, 2, old)).diverging_epoch.end_offset == 1
        heal(cluster, 1)
        await in_sync(cluster, 1, 2, 3)
        assert values(cluster, 1) == [b"a", b"c"]

    run(4, [1, 2, 3], scenario)


def test_kip_320_a_follower_does_not_cut_its_log_by_what_its_leader_said_in_an_earlier_epoch() -> None:
    """The response is late: broker 3 has followed another leader since, whose records are committed, and then the first
    one again."""

    async def scenario(cluster: Cluster) -> None:
        network = cluster.world.network
        assert await write(cluster, 1, b"a", acks=-1) == 0
        network.cut_both_ways("node1", f"node{CONTROLLER}")
        await leads(cluster, 3)
        network.heal_both_ways("node1", f"node{CONTROLLER}")
        await in_sync(cluster, 1, 2, 3)
        # Broker 3 leads, and takes a record that nobody copies.
        cut_off(cluster, 3)
        assert await write(cluster, 3, b"x") == 0
        await leads(cluster, 1)
        # It hears that broker 1 leads, and asks; the response, where to cut its log, does not arrive.
        network.heal_both_ways("node3", "node2")
        network.heal_both_ways("node3", f"node{CONTROLLER}")
        network.heal("node3", "node1")
        await leads(cluster, 1, 3)
        await asyncio.sleep(1)
        assert values(cluster, 3) == [b"a", b"x"]
        network.cut_both_ways("node1", f"node{CONTROLLER}")
        await leads(cluster, 2, 3)
        network.heal_both_ways("node1", f"node{CONTROLLER}")
        await in_sync(cluster, 1, 2, 3)
        assert await write(cluster, 2, b"y", acks=-1) == 0
        assert values(cluster, 3) == [b"a", b"y"]
        await cluster.ask(2, ElectLeadersRequest(0, None), 2)
        await leads(cluster, 1, 3)
        seen = []
        network.heal("node1", "node3")
        for _ in range(200):
            await asyncio.sleep(0.001)
            seen.append(values(cluster, 3))
        assert all(found == [b"a", b"y"] for found in seen)

    run(5, [1, 3, 2], scenario)
