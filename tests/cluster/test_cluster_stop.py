"""Clean stops, on simulated machines: of all nodes at once, and of the last one. Time is virtual here."""

import pytest

from odradek.services.cluster.lifecycle import RETIRE_SECONDS
from tests.cluster.clusters import Cluster, until
from tests.cluster.test_replication import TOPIC, partition, produce, replica, run

SOON = 1.5  # less than RETIRE_SECONDS, which a node waits that cannot tell whether somebody is there


async def stop(cluster: Cluster, node_id: int) -> None:
    """The process ends; its machine stays up, and refuses connections to where it was."""
    machine = cluster.machines[node_id]
    await machine.stop()
    cluster.world.network.restart(machine.name)


def kill(cluster: Cluster, node_id: int) -> None:
    machine = cluster.machines[node_id]
    machine.cut_power()
    cluster.world.network.restart(machine.name)


async def stop_all(cluster: Cluster) -> list[float]:
    """Return when each has stopped, in seconds."""
    world = cluster.world
    began = world.now()
    ended = []

    async def stop_one(node_id: int) -> None:
        await stop(cluster, node_id)
        ended.append(world.now() - began)

    tasks = [world.spawn(stop_one(node_id)) for node_id in cluster.machines]
    for task in tasks:
        await task
    return ended


@pytest.mark.parametrize("seed", range(1, 9))
def test_all_nodes_stop_at_once_and_nobody_waits_for_those_that_are_gone(seed: int) -> None:
    assert SOON < RETIRE_SECONDS

    async def scenario(cluster: Cluster) -> None:
        for number in range(3):
            assert (await produce(cluster, partition(cluster).leader, b"%d" % number)).error_code == 0
        assert max(await stop_all(cluster)) < SOON
        await cluster.start()
        await until(lambda: len(cluster.leaders()) == 1 and partition(cluster).leader > 0)
        await until(lambda: replica(cluster, partition(cluster).leader).high_watermark == 3)

    run(seed, scenario)


def test_the_last_node_of_three_stops_without_a_quorum() -> None:
    async def scenario(cluster: Cluster) -> None:
        await stop(cluster, 2)
        kill(cluster, 3)
        began = cluster.world.now()
        await stop(cluster, 1)
        assert cluster.world.now() - began < SOON

    run(11, scenario)


def test_a_broker_stops_when_its_only_controller_is_gone() -> None:
    async def scenario(cluster: Cluster) -> None:
        kill(cluster, 4)
        began = cluster.world.now()
        await stop(cluster, 1)
        assert cluster.world.now() - began < SOON

    run(12, scenario, controllers=(4,), brokers=(1, 2, 3))


def test_controllers_that_are_silent_may_be_there_so_a_broker_waits_for_them() -> None:
    async def scenario(cluster: Cluster) -> None:
        for controller in (4, 5, 6):
            cluster.world.network.cut("node1", f"node{controller}")
        began = cluster.world.now()
        await stop(cluster, 1)
        assert cluster.world.now() - began >= RETIRE_SECONDS

    run(13, scenario, controllers=(4, 5, 6), brokers=(1, 2, 3))


def test_one_controller_that_is_gone_leaves_a_majority_which_lets_a_broker_go() -> None:
    async def scenario(cluster: Cluster) -> None:
        (controller,) = cluster.leaders()
        kill(cluster, next(node_id for node_id in (4, 5, 6) if node_id != controller))
        await stop(cluster, 1)
        (controller,) = cluster.leaders()
        image = cluster.image(controller)
        assert image.brokers[1].is_fenced and image.topics[TOPIC].partitions[0].leader in (2, 3)

    run(14, scenario, controllers=(4, 5, 6), brokers=(1, 2, 3))
