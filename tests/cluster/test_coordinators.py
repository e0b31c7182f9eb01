"""Groups whose coordinator is on another broker than the one that is asked for it."""

import asyncio

import pytest

from odradek.errors import ErrorCode
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.cluster.clusters import Cluster, new_cluster
from tests.lives.members import committed_offsets_request

VERSION = 6
SETTINGS = {"offsets.topic.num.partitions": "6"}


def test_every_broker_names_the_same_coordinator() -> None:
    world, cluster = new_cluster(5, settings=SETTINGS)
    groups = [f"group-{number}" for number in range(20)]

    async def scenario() -> None:
        await cluster.start()
        found = {}
        for node_id in cluster.brokers:
            response = await cluster.ask(node_id, FindCoordinatorRequest("", 0, groups), VERSION)
            found[node_id] = [(one.error_code, one.node_id) for one in response.coordinators]
        assert found[1] == found[2] == found[3]
        assert set(found[1]) == {(0, node_id) for node_id in cluster.brokers}

    world.run(scenario())


def test_offsets_are_asked_for_before_there_ever_was_a_group() -> None:
    world, cluster = new_cluster(6, settings=SETTINGS)

    async def scenario() -> None:
        await cluster.start()
        response = await cluster.ask(1, committed_offsets_request("apple"), 9)
        assert [group.group_id for group in response.groups] == ["apple"]

    world.run(scenario())


@pytest.mark.parametrize("factor", [{}, {"offsets.topic.replication.factor": "3"}], ids=["default", "set"])
@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_a_broker_that_is_down_when_the_first_group_comes_has_its_replicas_all_the_same(
    factor: dict[str, str], is_clean: bool
) -> None:
    """Otherwise the loss of one more broker would end all groups, for ever after."""
    world, cluster = new_cluster(7, settings={**SETTINGS, **factor})

    async def scenario() -> None:
        await cluster.start()
        if is_clean:
            await cluster.machines[3].stop()
        else:
            cluster.machines[3].cut_power()
        while any(broker.id == 3 for broker in cluster.image(1).active_brokers()):
            await asyncio.sleep(0.1)
        await cluster.ask(1, FindCoordinatorRequest("", 0, ["apple"]), VERSION)
        assert replicas_of_offsets(cluster) == {frozenset({1, 2, 3})}

    world.run(scenario())


def test_a_factor_that_is_set_waits_for_brokers_that_have_never_been_there() -> None:
    world, cluster = new_cluster(8, settings={**SETTINGS, "offsets.topic.replication.factor": "3"})

    async def scenario() -> None:
        await cluster.start(1, 2)
        response = await cluster.ask(1, FindCoordinatorRequest("", 0, ["apple"]), VERSION)
        assert response.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "only 2 broker(s)" in response.coordinators[0].error_message
        await cluster.start(3)
        await cluster.ask(1, FindCoordinatorRequest("", 0, ["apple"]), VERSION)
        assert replicas_of_offsets(cluster) == {frozenset({1, 2, 3})}

    world.run(scenario())


def replicas_of_offsets(cluster: Cluster) -> set[frozenset[int]]:
    topic = cluster.image(1).topics["__consumer_offsets"]
    return {frozenset(one.replicas) for one in topic.partitions.values()}
