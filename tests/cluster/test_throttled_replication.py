"""Throttled replication (KIP-73), on simulated machines: who is held back, and who is not."""

import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.metadata.image import ResourceType
from odradek.records.record import Record, build_batch
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.cluster.clusters import Cluster, new_cluster, until

SLOW, FREE = "slow", "free"
RATE = 50_000  # bytes per second
BATCH_BYTES = 20_000
BATCHES = 40
SECONDS = BATCH_BYTES * BATCHES / RATE  # that it takes to copy all of them at this rate
SET, DELETE = 0, 1
LEADER, FOLLOWER = 1, 2
VALUE = b"x" * (BATCH_BYTES - 100)

Scenario = Callable[["Throttled"], Coroutine[Any, Any, None]]


class Throttled:
    """Two topics with one partition each, which is on the same two brokers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def behind(self, topic: str) -> int:
        """The records that the follower does not have."""
        ends = []
        for node_id in (LEADER, FOLLOWER):
            node = self.cluster.machines[node_id].node
            replica = node.replicas.present(topic, 0) if node is not None else None
            ends.append(replica.log.end_offset if replica is not None else 0)
        return ends[0] - ends[1]

    def size(self, topic: str) -> int:
        """The size of its log at the leader."""
        node = self.cluster.machines[LEADER].node
        replica = node.replicas.present(topic, 0) if node is not None else None
        assert replica is not None
        return int(replica.log.size_bytes)

    def is_exceeded(self, side: str) -> bool:
        node = self.cluster.machines[LEADER if side == "leader" else FOLLOWER].node
        assert node is not None
        quota = node.services.partitions.leader_quota if side == "leader" else node._replication.quota
        return quota.is_exceeded(node.services.node.host.steady_ms())

    async def throttled_bytes(self, node_id: int) -> dict[str, int]:
        """Return the bytes by the node's role, as it tells those who watch it."""
        node = self.cluster.machines[node_id].node
        assert node is not None
        text = await node._new_monitoring(node.services.node.turns).metrics_text()
        found = re.findall(r'throttled_replication_bytes_total{role="(\w+)"} (\d+)', text)
        return {role: int(count) for role, count in found}

    @property
    def isr(self) -> Any:
        return self.cluster.image(LEADER).topics[SLOW].partitions[0].isr

    async def produce(self, topic: str, acks: int = -1) -> int:
        batch = bytes(build_batch([Record(0, 1_700_000_000_000, None, VALUE)]))
        topic_id = self.cluster.image(LEADER).topics[topic].id
        data = TopicProduceData(topic_id, topic, [PartitionProduceData(0, batch)])
        response = await self.cluster.ask(LEADER, ProduceRequest(None, acks, 1000, [data]), 13)
        return int(response.responses[0].partition_responses[0].error_code)

    async def alter(self, kind: ResourceType, name: str, key: str, value: str | None) -> None:
        operation = DELETE if value is None else SET
        resource = AlterConfigsResource(kind, name, [AlterableConfig(key, operation, value)])
        response = await self.cluster.ask(LEADER, IncrementalAlterConfigsRequest([resource]), 1)
        assert response.responses[0].error_code == 0, response

    async def throttle(self, side: str, replicas: str | None, rate: int = RATE) -> None:
        await self.alter(ResourceType.BROKER, "", f"{side}.replication.throttled.rate", str(rate))
        await self.alter(ResourceType.TOPIC, SLOW, f"{side}.replication.throttled.replicas", replicas)

    async def stop_follower_and_fall_behind(self) -> None:
        self.cluster.machines[FOLLOWER].cut_power()
        await until(lambda: FOLLOWER not in self.isr)
        for topic in (SLOW, FREE):
            for _ in range(BATCHES):
                assert await self.produce(topic) == 0

    async def start_follower(self) -> float:
        """Start it, and return when it has copied the topic that is not throttled."""
        await self.cluster.start(FOLLOWER)
        await until(lambda: self.behind(FREE) == 0)
        return self.cluster.world.now()

    async def seconds_until_caught_up(self, since: float) -> float:
        await until(lambda: self.behind(SLOW) == 0)
        return self.cluster.world.now() - since


def run(scenario: Scenario) -> None:
    settings = {"replica.fetch.max.bytes": str(BATCH_BYTES), "replication.quota.window.num": "3"}
    world, cluster = new_cluster(1, settings=settings)

    async def main() -> None:
        await cluster.start()
        places = [CreatableReplicaAssignment(0, [LEADER, FOLLOWER])]
        topics = [CreatableTopic(name, -1, -1, places) for name in (SLOW, FREE)]
        response = await cluster.ask(1, CreateTopicsRequest(topics), 7)
        assert [topic.error_code for topic in response.topics] == [0, 0]
        await until(lambda: all(FREE in cluster.image(node_id).topics for node_id in cluster.machines))
        await scenario(Throttled(cluster))

    world.run(main())


BY_SIDE = pytest.mark.parametrize(("side", "broker"), [("leader", LEADER), ("follower", FOLLOWER)])


@BY_SIDE
def test_a_throttled_replica_catches_up_at_the_rate_that_is_set(side: str, broker: int) -> None:
    async def scenario(throttled: Throttled) -> None:
        await throttled.stop_follower_and_fall_behind()
        await throttled.throttle(side, f"0:{broker},5:9")
        since = await throttled.start_follower()
        assert throttled.behind(SLOW) > BATCHES / 2, "what is not throttled is not held back"
        assert 0.7 * SECONDS < await throttled.seconds_until_caught_up(since) < 1.5 * SECONDS
        await until(lambda: FOLLOWER in throttled.isr)
        other = LEADER + FOLLOWER - broker
        told = await throttled.throttled_bytes(broker)
        size = throttled.size(SLOW)
        assert size <= told.pop(side) < 1.1 * size, "every byte counts, and batches that were cut"
        assert {*told.values(), *(await throttled.throttled_bytes(other)).values()} == {0}

    run(scenario)


@BY_SIDE
def test_a_replica_that_is_in_sync_is_never_held_back(side: str, broker: int) -> None:
    async def scenario(throttled: Throttled) -> None:
        await throttled.throttle(side, "*", rate=1)
        for _ in range(5):
            assert await throttled.produce(SLOW) == 0, "acknowledged by both"
        assert throttled.is_exceeded(side), "though all of it counts"
        assert set(throttled.isr) == {LEADER, FOLLOWER}

    run(scenario)


@BY_SIDE
def test_a_replica_is_let_go_once_it_is_not_named_any_more(side: str, broker: int) -> None:
    async def scenario(throttled: Throttled) -> None:
        await throttled.stop_follower_and_fall_behind()
        await throttled.throttle(side, "*", rate=1)
        since = await throttled.start_follower()
        assert throttled.behind(SLOW) > BATCHES / 2
        await throttled.throttle(side, f"0:{LEADER + FOLLOWER - broker},0:3,1:{broker}", rate=1)
        assert await throttled.seconds_until_caught_up(since) < SECONDS / 2

    run(scenario)


def test_what_is_set_is_described_and_checked() -> None:
    async def scenario(throttled: Throttled) -> None:
        cluster = throttled.cluster
        await throttled.throttle("leader", "0:1,0:2")
        wanted = [
            DescribeConfigsResource(ResourceType.BROKER, "1", ["leader.replication.throttled.rate"]),
            DescribeConfigsResource(ResourceType.TOPIC, SLOW, ["leader.replication.throttled.replicas"]),
        ]
        response = await cluster.ask(LEADER, DescribeConfigsRequest(wanted), 4)
        values = [result.configs[0].value for result in response.results]
        assert values == [str(RATE), "0:1,0:2"]
        for kind, name, key, value in (
            (ResourceType.BROKER, "1", "follower.replication.throttled.rate", "-1"),
            (ResourceType.TOPIC, SLOW, "follower.replication.throttled.replicas", "all"),
        ):
            resource = AlterConfigsResource(kind, name, [AlterableConfig(key, SET, value)])
            response = await cluster.ask(LEADER, IncrementalAlterConfigsRequest([resource]), 1)
            assert response.responses[0].error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)

    run(scenario)
