"""Partitions that move from broker to broker, on simulated machines: who copies, who leads, and what is deleted."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from odradek.errors import ErrorCode
from odradek.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.cluster.clusters import Cluster, new_cluster, until
from tests.cluster.test_replication import TOPIC, log_bytes, partition, produce, replica
from tests.lives.members import committed_offsets_request
from tests.simulation.machine import DATA_DIR

BROKERS = (1, 2, 3, 4)
TRANSACTION = 1
LOADING = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS}
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "log.segment.delete.delay.ms": "1000",
}


def run(
    seed: int,
    scenario: Callable[[Cluster], Coroutine[Any, Any, None]],
    replicas: tuple[int, ...] = (1, 2),
    **settings: str,
) -> None:
    """Run with four brokers, a controller, and a topic of one partition on these brokers."""
    options = {**SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}
    world, cluster = new_cluster(seed, controllers=(5,), brokers=BROKERS, settings=options)

    async def main() -> None:
        await cluster.start()
        assignment = [CreatableReplicaAssignment(0, list(replicas))]
        response = await cluster.ask(1, CreateTopicsRequest([CreatableTopic(TOPIC, -1, -1, assignment)]), 7)
        assert [topic.error_code for topic in response.topics] == [0]
        await until(lambda: all(TOPIC in cluster.image(node_id).topics for node_id in cluster.machines))
        await scenario(cluster)

    world.run(main())


async def reassign(
    cluster: Cluster, target: list[int] | None, topic: str = TOPIC, index: int = 0, node_id: int = 1
) -> ErrorCode:
    wanted = ReassignableTopic(topic, [ReassignablePartition(index, target)])
    response = await cluster.ask(node_id, AlterPartitionReassignmentsRequest(topics=[wanted]), 1)
    assert response.error_code == 0
    return ErrorCode(response.responses[0].partitions[0].error_code)


async def ongoing(cluster: Cluster, node_id: int = 1) -> list[tuple[str, int]]:
    response = await cluster.ask(node_id, ListPartitionReassignmentsRequest(topics=None), 0)
    return [(topic.name, item.partition_index) for topic in response.topics for item in topic.partitions]


async def reassigning(cluster: Cluster, node_id: int) -> int:
    """The metric."""
    node = cluster.machines[node_id].node
    assert node is not None
    text = await node._new_monitoring(node.services.node.turns).metrics_text()
    (line,) = [line for line in text.splitlines() if line.startswith("odradek_reassigning_partitions ")]
    return int(line.split()[1])


def directories(cluster: Cluster, node_id: int, topic: str = TOPIC) -> list[str]:
    entries = cluster.machines[node_id].files.list(DATA_DIR)
    return [entry.name for entry in entries if entry.name.startswith(f"{topic}-0")]


def is_settled_on(cluster: Cluster, *replicas: int, node_id: int = 1) -> bool:
    now = partition(cluster, node_id)
    return bool(now.replicas == replicas and not now.adding_replicas and not now.removing_replicas)


async def settled_on(cluster: Cluster, *replicas: int) -> None:
    await until(lambda: all(is_settled_on(cluster, *replicas, node_id=node_id) for node_id in BROKERS))


def test_a_partition_moves_with_its_records_and_its_old_logs_are_deleted() -> None:
    async def scenario(cluster: Cluster) -> None:
        for number in range(5):
            assert (await produce(cluster, 1, b"%d" % number)).error_code == 0
        before = log_bytes(cluster, 1)
        assert await reassign(cluster, [3, 4]) is ErrorCode.NONE
        await settled_on(cluster, 3, 4)
        assert (partition(cluster).leader, sorted(partition(cluster).isr)) == (3, [3, 4])
        assert log_bytes(cluster, 3) == log_bytes(cluster, 4) == before
        assert await ongoing(cluster) == []
        for node_id in (1, 2):
            assert replica(cluster, node_id) is None
            (left,) = directories(cluster, node_id)
            assert left.endswith("-delete"), left
        await until(lambda: not directories(cluster, 1) and not directories(cluster, 2), 200)
        assert (await produce(cluster, 1, b"late")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await produce(cluster, 3, b"late")).base_offset == 5

    run(1, scenario)


def test_the_new_replicas_have_all_that_is_written_meanwhile() -> None:
    async def scenario(cluster: Cluster) -> None:
        written = 0
        cluster.world.network.cut("node3", "node1")
        assert await reassign(cluster, [3, 2]) is ErrorCode.NONE
        while not is_settled_on(cluster, 3, 2):
            leader = partition(cluster).leader
            response = await produce(cluster, leader, b"%d" % written)
            if not response.error_code:
                assert response.base_offset == written
                written += 1
            if written == 5:
                cluster.world.network.heal("node3", "node1")
            await asyncio.sleep(0.002)
        await settled_on(cluster, 3, 2)
        assert written >= 5
        await until(lambda: replica(cluster, 3).high_watermark == written)
        # What only node 2 had of the old leader was not acknowledged, and is cut when it follows the new one.
        await until(lambda: log_bytes(cluster, 2) == log_bytes(cluster, 3))

    run(2, scenario)


def test_one_that_cannot_catch_up_holds_it_up_until_it_is_cancelled() -> None:
    async def scenario(cluster: Cluster) -> None:
        await produce(cluster, 1, b"one")
        for other in (1, 2):
            cluster.world.network.cut("node3", f"node{other}")
        assert await reassign(cluster, [3, 2], node_id=4) is ErrorCode.NONE
        await asyncio.sleep(3)
        assert (partition(cluster).leader, partition(cluster).replicas) == (1, (3, 2, 1))
        assert await ongoing(cluster, 2) == [(TOPIC, 0)]
        assert [await reassigning(cluster, node_id) for node_id in (1, 2)] == [1, 0]  # told by the leader
        await until(lambda: bool(directories(cluster, 3)))
        assert (await produce(cluster, 1, b"two")).base_offset == 1
        assert await reassign(cluster, None) is ErrorCode.NONE
        await settled_on(cluster, 2, 1)
        assert partition(cluster).leader == 1
        assert (await produce(cluster, 1, b"three")).base_offset == 2
        (left,) = directories(cluster, 3)
        assert left.endswith("-delete")
        assert await reassign(cluster, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    run(3, scenario)


def test_a_partition_that_comes_back_begins_with_an_empty_log() -> None:
    async def scenario(cluster: Cluster) -> None:
        await produce(cluster, 1, b"one")
        for target in ([3], [1], [3], [1]):
            assert await reassign(cluster, target, node_id=2) is ErrorCode.NONE
            await settled_on(cluster, *target)
            assert replica(cluster, target[0]).log.end_offset == 1
        assert (await produce(cluster, 1, b"two")).base_offset == 1

    run(4, scenario, replicas=(1,))


def test_requests_that_wait_at_a_leader_that_leaves_are_told_so() -> None:
    async def scenario(cluster: Cluster) -> None:
        topic_id = cluster.image(1).topics[TOPIC].id
        request = FetchRequest(
            max_wait_ms=30_000,
            min_bytes=1,
            topics=[FetchTopic(topic_id=topic_id, partitions=[FetchPartition(0)])],
        )
        parked = cluster.world.spawn(cluster.ask(1, request, 16))
        await asyncio.sleep(0.1)
        await reassign(cluster, [3, 4])
        response = await parked
        (partition,) = response.responses[0].partitions
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(5, scenario)


def test_acks_all_waits_for_as_many_as_min_insync_replicas_says_from_the_first_new_replica_on() -> None:
    """Replicas that are being added count as replicas, as in Kafka."""

    async def scenario(cluster: Cluster) -> None:
        assert (await produce(cluster, 1, b"alone")).error_code == 0
        cluster.world.network.cut("node2", "node1")
        await reassign(cluster, [1, 2], node_id=3)
        await until(lambda: partition(cluster).replicas == (1, 2))
        refused = await produce(cluster, 1, b"refused")
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        cluster.world.network.heal("node2", "node1")
        await settled_on(cluster, 1, 2)
        assert (await produce(cluster, 1, b"both")).error_code == 0

    run(6, scenario, replicas=(1,), min_insync_replicas="2")


async def have_a_log_set_aside(cluster: Cluster) -> None:
    """Let broker 2 set a log aside: it is down when its replica leaves."""
    await produce(cluster, 1, b"one")
    await cluster.machines[2].stop()
    await reassign(cluster, [1, 3])
    await until(lambda: is_settled_on(cluster, 1, 3))
    await cluster.start(2)
    (left,) = directories(cluster, 2)
    assert left.endswith("-stray")


def test_a_broker_that_was_down_when_its_replica_left_sets_its_log_aside() -> None:
    async def scenario(cluster: Cluster) -> None:
        await have_a_log_set_aside(cluster)
        assert replica(cluster, 2) is None
        assert await reassign(cluster, [1, 2]) is ErrorCode.NONE
        await settled_on(cluster, 1, 2)
        assert log_bytes(cluster, 2) == log_bytes(cluster, 1)

    run(7, scenario)


def test_a_topic_that_is_deleted_while_it_moves_is_gone_everywhere() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.world.network.cut("node3", "node1")
        await reassign(cluster, [3])
        await until(lambda: bool(directories(cluster, 3)))
        await cluster.ask(1, DeleteTopicsRequest([DeleteTopicState(TOPIC)]), 6)
        await until(
            lambda: all(
                name.endswith("-delete") for node_id in BROKERS for name in directories(cluster, node_id)
            )
        )
        assert await ongoing(cluster) == []

    run(8, scenario)


def test_a_new_controller_and_a_restarted_leader_continue() -> None:
    async def scenario(cluster: Cluster) -> None:
        await produce(cluster, 1, b"one")
        cluster.world.network.cut("node3", "node1")
        cluster.world.network.cut("node3", "node2")
        await reassign(cluster, [3, 4])
        for node_id in (5, 1):
            cluster.machines[node_id].cut_power()
            await cluster.start(node_id)
        cluster.world.network.heal_all()
        await settled_on(cluster, 3, 4)
        await until(lambda: replica(cluster, 4).high_watermark == 1)

    run(9, scenario)


def test_a_coordinator_moves_with_its_partition() -> None:
    """It moves from broker to broker, and back: each knows the offsets that were committed to the one before."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.ask(1, FindCoordinatorRequest("", 0, ["g"]), 6)
        await until(lambda: all(OFFSETS_TOPIC in cluster.image(node_id).topics for node_id in BROKERS))
        first = cluster.image(1).topics[OFFSETS_TOPIC].partitions[0].leader
        others = [node_id for node_id in BROKERS if node_id != first]
        for number, target in enumerate((others[0], others[1], first)):
            coordinator = cluster.image(1).topics[OFFSETS_TOPIC].partitions[0].leader
            await commit(cluster, coordinator, number)
            assert await reassign(cluster, [target], OFFSETS_TOPIC) is ErrorCode.NONE
            await until(lambda: is_coordinator(cluster, target))  # noqa: B023
            assert await committed(cluster, target) == number
            assert await committed(cluster, coordinator) is ErrorCode.NOT_COORDINATOR
            found = await cluster.ask(4, FindCoordinatorRequest("", 0, ["g"]), 6)
            assert found.coordinators[0].node_id == target

    run(10, scenario)


def test_a_transaction_coordinator_moves_with_its_partition() -> None:
    """The new one knows the producer, and raises its epoch."""

    async def scenario(cluster: Cluster) -> None:
        find = FindCoordinatorRequest("", TRANSACTION, ["tx"])
        await until_coordinated(cluster, find)
        seen = []
        for target in (1, 2, 3):
            assert await reassign(cluster, [target], TRANSACTIONS_TOPIC) is ErrorCode.NONE
            await until(lambda: is_coordinator(cluster, target, TRANSACTIONS_TOPIC))  # noqa: B023
            await until_coordinated(cluster, find)
            seen.append(await init_producer(cluster, target))
        assert [epoch for _, epoch in seen] == [0, 1, 2]
        assert len({producer_id for producer_id, _ in seen}) == 1

    settings = {
        "state.log.num.partitions": "1",
        "state.log.replication.factor": "1",
        "state.log.min.isr": "1",
    }
    run(11, scenario, **{f"transaction.{name}": value for name, value in settings.items()})


async def until_coordinated(cluster: Cluster, find: FindCoordinatorRequest) -> None:
    async with asyncio.timeout(60):
        while (await cluster.ask(1, find, 6)).coordinators[0].error_code:
            await asyncio.sleep(0.05)


async def init_producer(cluster: Cluster, node_id: int) -> tuple[int, int]:
    async with asyncio.timeout(60):
        while True:
            response = await cluster.ask(node_id, InitProducerIdRequest("tx", 60_000), 4)
            if not response.error_code:
                return response.producer_id, response.producer_epoch
            assert response.error_code in LOADING, ErrorCode(response.error_code)
            await asyncio.sleep(0.01)


def is_coordinator(cluster: Cluster, target: int, topic: str = OFFSETS_TOPIC) -> bool:
    return all(
        cluster.image(node_id).topics[topic].partitions[0].replicas == (target,) for node_id in BROKERS
    )


async def commit(cluster: Cluster, node_id: int, offset: int) -> None:
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[OffsetCommitRequestPartition(0, offset)])
    request = OffsetCommitRequest("g", -1, "", topics=[topic])
    async with asyncio.timeout(60):
        while True:
            response = await cluster.ask(node_id, request, 8)
            code = ErrorCode(response.topics[0].partitions[0].error_code)
            if code is ErrorCode.NONE:
                return
            assert code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, code
            await asyncio.sleep(0.01)


async def committed(cluster: Cluster, node_id: int) -> int | ErrorCode:
    async with asyncio.timeout(60):
        while True:
            response = await cluster.ask(node_id, committed_offsets_request("g"), 8)
            group = response.groups[0]
            if group.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
            await asyncio.sleep(0.01)
    if group.error_code:
        return ErrorCode(group.error_code)
    return next(item.committed_offset for topic in group.topics for item in topic.partitions)
