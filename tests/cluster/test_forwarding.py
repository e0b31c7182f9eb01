"""A request that is forwarded to a controller which is cut off finds the next one."""

import pytest

from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.metadata import MetadataRequest
from tests.cluster.clusters import new_cluster

VERSION = 7


@pytest.mark.parametrize("is_connected", [True, False], ids=["waits for it", "connects to it"])
def test_a_request_goes_to_the_next_controller_as_soon_as_there_is_one(is_connected: bool) -> None:
    """Not only when the first one has not answered in time, 30 s: its client, which waits 5 s, has given up by then."""
    world, cluster = new_cluster(3)

    async def scenario() -> None:
        await cluster.start()
        (leader,) = cluster.leaders()
        followers = [node_id for node_id in cluster.machines if node_id != leader]
        for node_id in followers:
            world.network.cut_both_ways(f"node{leader}", f"node{node_id}")
            if not is_connected:
                world.network.drop_connections(f"node{leader}", f"node{node_id}")
        for node_id in followers:
            request = CreateTopicsRequest([CreatableTopic(f"t{node_id}", 1, 1)], 10_000)
            response = await cluster.ask(node_id, request, VERSION)
            assert [topic.error_code for topic in response.topics] == [0]

    world.run(scenario())


def test_any_broker_that_is_alive_is_told_to_be_the_controller() -> None:
    """Each of them forwards, as in Kafka. One is told after the other, so that all get some of the load."""
    world, cluster = new_cluster(5)

    async def scenario() -> None:
        await cluster.start()
        metadata = [(await cluster.ask(1, MetadataRequest([]), 12)).controller_id for _ in range(6)]
        described = [(await cluster.ask(1, DescribeClusterRequest(), 2)).controller_id for _ in range(6)]
        assert set(metadata) == set(described) == {1, 2, 3}
        await cluster.machines[3].stop()
        assert {(await cluster.ask(1, MetadataRequest([]), 12)).controller_id for _ in range(6)} == {1, 2}

    world.run(scenario())
