"""Quotas in a cluster, on simulated machines: all brokers follow them, and the controller's limits reach the client."""

from typing import Any

from odradek.errors import ErrorCode
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityDataInRequest,
    EntryDataInRequest,
    OpData,
)
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from tests.cluster.clusters import Cluster, new_cluster, until


async def set_quota(cluster: Cluster, node_id: int, **quotas: float) -> None:
    ops = [OpData(key, value) for key, value in quotas.items()]
    entry = EntryDataInRequest([EntityDataInRequest("client-id", "alice")], ops)
    response = await cluster.ask(node_id, AlterClientQuotasRequest([entry]), 1)
    assert [entry.error_code for entry in response.entries] == [0]


def quotas_of(cluster: Cluster, node_id: int) -> Any:
    node = cluster.machines[node_id].node
    assert node is not None
    return node.services.quotas


def a_follower(cluster: Cluster) -> int:
    return next(node_id for node_id in cluster.machines if node_id not in cluster.leaders())


def test_every_broker_follows_a_change_within_a_second() -> None:
    world, cluster = new_cluster(1)

    async def scenario() -> None:
        await cluster.start()
        await set_quota(cluster, a_follower(cluster), producer_byte_rate=1000.0)
        await until(lambda: all(quotas_of(cluster, one).is_active for one in cluster.machines), 1.0)
        for node_id in cluster.machines:
            response = await cluster.ask(node_id, DescribeClientQuotasRequest([]), 1)
            assert [len(entry.values) for entry in response.entries] == [1]

    world.run(scenario())


def test_a_mutation_that_another_node_decides_throttles_the_client_here() -> None:
    world, cluster = new_cluster(2)

    async def scenario() -> None:
        await cluster.start()
        node_id = a_follower(cluster)
        await set_quota(cluster, node_id, controller_mutation_rate=1.0)
        client = await world.connect("alice", cluster.machines[node_id])
        topics = [CreatableTopic(name, 10, 1) for name in "abc"]
        response = await client.ask(CreateTopicsRequest(topics), 7)
        codes = [topic.error_code for topic in response.topics]
        assert codes == [0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        assert response.throttle_time_ms == 9_000
        began = world.now()
        await client.ask(ApiVersionsRequest("x", "1"), 3, 60.0)
        assert world.now() - began > 8.5

    world.run(scenario())
