"""DeleteRecords in a cluster, as scripts: who has to delete the records before it is answered, and whether they stay
deleted. Seeds of the simulation have found what these show."""

from typing import Any

from odradek.errors import ErrorCode
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.cluster.clusters import Cluster, until
from tests.cluster.storm import SETTINGS
from tests.cluster.test_replication import TOPIC, partition, produce, replica, run

EARLIEST = -2
BROKERS = (1, 2, 3)


async def delete(cluster: Cluster, offset: int, timeout_ms: int = 4_000) -> Any:
    topics = [DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, offset)])]
    leader = partition(cluster, alive(cluster)).leader
    response = await cluster.ask(leader, DeleteRecordsRequest(topics, timeout_ms), 2)
    return response.topics[0].partitions[0]


def alive(cluster: Cluster) -> int:
    return next(node_id for node_id in BROKERS if cluster.machines[node_id].is_on)


def others(cluster: Cluster) -> list[int]:
    return [node_id for node_id in BROKERS if node_id != partition(cluster, alive(cluster)).leader]


def starts(cluster: Cluster) -> list[int]:
    return [replica(cluster, node_id).log.log_start_offset for node_id in BROKERS]


async def first_offset(cluster: Cluster, leader: int) -> int:
    asked = ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, -1, EARLIEST)])
    response = await cluster.ask(leader, ListOffsetsRequest(-1, topics=[asked]), 7)
    return int(response.topics[0].partitions[0].offset)


def test_it_is_answered_once_all_replicas_have_deleted_the_records() -> None:
    async def scenario(cluster: Cluster) -> None:
        for number in range(5):
            await produce(cluster, partition(cluster).leader, b"%d" % number)
        began = cluster.world.now()
        deleted = await delete(cluster, 3)
        assert (deleted.error_code, deleted.low_watermark) == (ErrorCode.NONE, 3)
        assert starts(cluster) == [3, 3, 3]
        assert cluster.world.now() < began + 0.1, "parked fetches are told at once"

    run(1, scenario, settings=SETTINGS)


def test_a_replica_is_waited_for_as_long_as_its_broker_is_alive() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader, away = partition(cluster).leader, others(cluster)[0]
        for number in range(5):
            await produce(cluster, leader, b"%d" % number)
        cluster.world.network.cut(f"node{leader}", f"node{away}")
        late = await delete(cluster, 3, timeout_ms=200)
        assert (late.error_code, late.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        cluster.machines[away].cut_power()
        cluster.world.network.heal_both_ways(f"node{leader}", f"node{away}")
        deleted = await delete(cluster, 4)
        assert (deleted.error_code, deleted.low_watermark) == (ErrorCode.NONE, 4)
        await cluster.start(away)
        await until(lambda: replica(cluster, away) is not None and starts(cluster) == [4, 4, 4])

    run(2, scenario, settings=SETTINGS)


def test_what_was_deleted_is_not_back_when_another_broker_leads() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = partition(cluster).leader
        for number in range(5):
            await produce(cluster, leader, b"%d" % number)
        assert (await delete(cluster, 3)).error_code == ErrorCode.NONE
        rest = others(cluster)
        cluster.machines[leader].cut_power()
        await until(lambda: partition(cluster, rest[0]).leader in rest)
        successor = partition(cluster, rest[0]).leader
        await until(lambda: replica(cluster, successor).leader is not None)
        assert await first_offset(cluster, successor) == 3

    run(3, scenario, settings=SETTINGS)


def test_a_follower_finds_on_its_disk_what_was_deleted() -> None:
    """It comes back after a power cut, and cannot ask its leader."""

    async def scenario(cluster: Cluster) -> None:
        leader, follower = partition(cluster).leader, others(cluster)[0]
        for number in range(5):
            await produce(cluster, leader, b"%d" % number)
        assert (await delete(cluster, 3)).error_code == ErrorCode.NONE
        cluster.machines[follower].cut_power()
        cluster.world.network.cut(f"node{follower}", f"node{leader}")
        await cluster.start(follower)
        assert replica(cluster, follower).log.log_start_offset == 3

    run(5, scenario, controllers=(4,), settings=SETTINGS)


def test_a_follower_that_was_away_catches_up_though_the_log_starts_in_the_middle_of_a_batch() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader, away = partition(cluster).leader, others(cluster)[0]
        cluster.machines[away].cut_power()
        await produce(cluster, leader, *(b"%d" % number for number in range(6)))
        assert (await delete(cluster, 4)).error_code == ErrorCode.NONE
        await cluster.start(away)
        await until(lambda: replica(cluster, away) is not None and replica(cluster, away).log.end_offset == 6)
        assert starts(cluster) == [4, 4, 4]
        await until(lambda: set(partition(cluster, leader).isr) == {*BROKERS})

    run(4, scenario, settings=SETTINGS)
