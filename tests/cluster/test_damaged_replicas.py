"""Replicas whose logs are damaged while their nodes are down: who finds it, who resigns, and what is copied again."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.metadata.image import LOST_DIRECTORY
from odradek.storage.disk.checkpoints import DAMAGED
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.cluster.clusters import Cluster, new_cluster, until
from tests.cluster.rot import flip
from tests.cluster.test_replication import TOPIC, log_bytes, partition, produce, replica
from tests.simulation.machine import DATA_DIR

SEGMENT = f"{DATA_DIR}/{TOPIC}-0/{0:020}.log"
RECORDS = 12
MAGIC = 16
NO_CHECK = {"log.integrity.check.bytes.per.second": "0", "log.retention.check.interval.ms": "1000"}
CHECK = {"log.integrity.check.interval.ms": "200"}
SMALL = CreatableTopicConfig("internal.segment.bytes", "300")

Scenario = Callable[[Cluster, int, list[int]], Coroutine[Any, Any, None]]


def run(seed: int, scenario: Scenario, settings: dict[str, str], replicas: int = 3) -> None:
    """`scenario` begins when a follower, or the only replica, was stopped and a bit in its oldest segment was flipped.
    It gets that node's id, and those of the other replicas, the leader first."""
    world, cluster = new_cluster(seed, settings=settings)

    async def main() -> None:
        await cluster.start()
        await cluster.ask(1, CreateTopicsRequest([CreatableTopic(TOPIC, 1, replicas, configs=[SMALL])]), 7)
        await until(lambda: all(TOPIC in cluster.image(node_id).topics for node_id in cluster.machines))
        await until(lambda: partition(cluster).leader > 0)
        found = partition(cluster)
        for number in range(RECORDS):
            assert (await produce(cluster, found.leader, b"%d" % number)).error_code == ErrorCode.NONE
        damaged = next((one for one in found.replicas if one != found.leader), found.leader)
        others = [one for one in found.replicas if one != damaged]
        await cluster.machines[damaged].stop()
        flip(cluster.machines[damaged], SEGMENT, MAGIC, 0x10)
        await scenario(cluster, damaged, others)

    world.run(main())


async def fetch(cluster: Cluster, node_id: int, offset: int) -> Any:
    wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic=TOPIC, partitions=[wanted])
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[topic])
    return (await cluster.ask(node_id, request, 12)).responses[0].partitions[0]


def is_in_sync(cluster: Cluster, node_id: int) -> bool:
    node = cluster.machines[node_id].node
    return node is not None and node_id in partition(cluster, node_id).isr


async def await_copy(cluster: Cluster, damaged: int, leader: int) -> None:
    await until(
        lambda: log_bytes(cluster, damaged) == log_bytes(cluster, leader) and is_in_sync(cluster, damaged)
    )


def test_the_check_finds_damage_that_nobody_reads() -> None:
    async def scenario(cluster: Cluster, damaged: int, others: list[int]) -> None:
        epoch = partition(cluster, others[0]).leader_epoch
        await cluster.start(damaged)
        await await_copy(cluster, damaged, others[0])
        assert partition(cluster, others[0]).leader_epoch > epoch
        assert partition(cluster, others[0]).directory_of(damaged) != LOST_DIRECTORY
        assert replica(cluster, damaged).log.damage is None

    run(1, scenario, CHECK)


def test_a_consumer_at_a_follower_finds_it_and_is_told() -> None:
    async def scenario(cluster: Cluster, damaged: int, others: list[int]) -> None:
        await cluster.start(damaged)
        await until(lambda: is_in_sync(cluster, damaged))
        assert (await fetch(cluster, damaged, 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await await_copy(cluster, damaged, others[0])
        assert (await fetch(cluster, damaged, 0)).records

    run(2, scenario, NO_CHECK)


def test_it_stays_as_it_is_while_no_other_replica_can_lead() -> None:
    async def scenario(cluster: Cluster, damaged: int, others: list[int]) -> None:
        await cluster.start(damaged)
        await until(lambda: is_in_sync(cluster, damaged))
        for other in others:
            await cluster.machines[other].stop()
            await until(lambda other=other: other not in partition(cluster, damaged).isr)
        await until(lambda: partition(cluster, damaged).leader == damaged)
        damaged_bytes = log_bytes(cluster, damaged)
        assert (await fetch(cluster, damaged, 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await asyncio.sleep(5)
        assert log_bytes(cluster, damaged) == damaged_bytes
        assert (await fetch(cluster, damaged, RECORDS - 1)).records
        await cluster.start(others[0])
        await until(lambda: partition(cluster, others[0]).leader == others[0])
        await await_copy(cluster, damaged, others[0])

    # A controller on a node of its own decides while two of three brokers are away.
    world_settings = {**NO_CHECK, "min.insync.replicas": "1"}
    run_apart(3, scenario, world_settings)


def run_apart(seed: int, scenario: Scenario, settings: dict[str, str]) -> None:
    world, cluster = new_cluster(seed, settings=settings, controllers=(4,), brokers=(1, 2, 3))

    async def main() -> None:
        await cluster.start()
        await cluster.ask(1, CreateTopicsRequest([CreatableTopic(TOPIC, 1, 3, configs=[SMALL])]), 7)
        await until(lambda: all(TOPIC in cluster.image(node_id).topics for node_id in cluster.machines))
        await until(lambda: partition(cluster).leader > 0)
        found = partition(cluster)
        for number in range(RECORDS):
            assert (await produce(cluster, found.leader, b"%d" % number)).error_code == ErrorCode.NONE
        damaged = next(one for one in found.replicas if one != found.leader)
        await cluster.machines[damaged].stop()
        flip(cluster.machines[damaged], SEGMENT, MAGIC, 0x10)
        await scenario(cluster, damaged, [one for one in found.replicas if one != damaged])

    world.run(main())


@pytest.mark.parametrize("is_lost", [False, True], ids=["before the metadata says so", "after"])
def test_a_restart_in_the_middle_leaves_nothing_half_done(is_lost: bool) -> None:
    async def scenario(cluster: Cluster, damaged: int, others: list[int]) -> None:
        machine, mark = cluster.machines[damaged], f"{DATA_DIR}/{TOPIC}-0/{DAMAGED}"
        await cluster.start(damaged)
        await until(lambda: is_in_sync(cluster, damaged))
        if not is_lost:  # the controller does not hear of it
            for other in others:
                cluster.world.network.cut(machine.name, f"node{other}")
        assert (await fetch(cluster, damaged, 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        leader = others[0]
        if is_lost:
            await until(lambda: partition(cluster, leader).directory_of(damaged) == LOST_DIRECTORY)
        else:
            await until(lambda: mark in machine.files.contents())
        machine.cut_power()
        for other in others:
            cluster.world.network.heal_both_ways(machine.name, f"node{other}")
        await cluster.start(damaged)
        await await_copy(cluster, damaged, leader)
        assert mark not in machine.files.contents()

    run(4, scenario, NO_CHECK)


def test_the_only_replica_is_neither_marked_nor_given_up() -> None:
    async def scenario(cluster: Cluster, damaged: int, others: list[int]) -> None:
        assert not others
        await cluster.start(damaged)
        await until(lambda: partition(cluster, damaged).leader == damaged)
        assert (await fetch(cluster, damaged, 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await asyncio.sleep(10)
        assert replica(cluster, damaged).log.damage is not None
        assert not any(path.endswith(DAMAGED) for path in cluster.machines[damaged].files.contents())
        assert (await fetch(cluster, damaged, RECORDS - 1)).records

    run(5, scenario, CHECK, replicas=1)
