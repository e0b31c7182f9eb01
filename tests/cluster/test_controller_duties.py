"""Tests of what the active controller does unasked, on simulated machines: fencing, elections, shutdowns."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.controller.requests import broker_heartbeat
from odradek.metadata.image import NO_LEADER
from odradek.services.cluster import controller_duties
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from odradek.wire.messages.elect_leaders import ElectLeadersRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.cluster.clusters import Cluster, new_cluster, until

TOPIC = "t"
UNCLEAN = "unclean.leader.election.enable"


def run(seed: int, scenario: Callable[[Cluster], Coroutine[Any, Any, None]], **options: Any) -> None:
    """Node 4 is the controller; 1, 2 and 3 are brokers. Topic t has 3 partitions with 3 replicas, u has one."""
    world, cluster = new_cluster(seed, controllers=(4,), brokers=(1, 2, 3), **options)

    async def main() -> None:
        await cluster.start()
        settings = [CreatableTopicConfig("min.insync.replicas", "2")]
        topics = [CreatableTopic(TOPIC, 3, 3, configs=settings), CreatableTopic("u", 3, 1)]
        response = await cluster.ask(1, CreateTopicsRequest(topics), 7)
        assert [topic.error_code for topic in response.topics] == [0, 0]
        await scenario(cluster)

    world.run(main())


def partitions(cluster: Cluster, topic: str = TOPIC) -> list[Any]:
    return list(cluster.image(4).topics[topic].partitions.values())


def leaders(cluster: Cluster, topic: str = TOPIC) -> set[int]:
    return {item.leader for item in partitions(cluster, topic)}


def is_fenced(cluster: Cluster, broker_id: int) -> bool:
    return bool(cluster.image(4).brokers[broker_id].is_fenced)


def test_a_broker_that_is_silent_is_fenced_when_its_session_is_over() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert leaders(cluster) == leaders(cluster, "u") == {1, 2, 3}
        began = cluster.world.now()
        for other in (1, 2, 4):
            cluster.world.network.cut("node3", f"node{other}")
        await until(lambda: is_fenced(cluster, 3))
        assert 7 <= cluster.world.now() - began <= 11, "9 s without a heartbeat"
        await until(lambda: leaders(cluster) == {1, 2})
        assert all(3 not in item.isr for item in partitions(cluster))
        assert leaders(cluster, "u") == {1, 2, NO_LEADER}
        for other in (1, 2, 4):
            cluster.world.network.heal("node3", f"node{other}")
        await until(lambda: leaders(cluster, "u") == {1, 2, 3})
        await until(lambda: all(set(item.isr) == {1, 2, 3} for item in partitions(cluster)))

    run(1, scenario)


def test_a_broker_is_fenced_in_several_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_duties, "PARTITIONS_AT_ONCE", 1)

    async def scenario(cluster: Cluster) -> None:
        cluster.machines[3].cut_power()
        await until(lambda: leaders(cluster) == {1, 2})
        await until(lambda: all(3 not in item.isr for item in partitions(cluster)))

    run(9, scenario)


def test_a_broker_is_unfenced_and_shut_down_in_several_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (controller_duties, broker_heartbeat):
        monkeypatch.setattr(module, "PARTITIONS_AT_ONCE", 1)

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2, 3):
            cluster.machines[broker_id].cut_power()
        await until(lambda: leaders(cluster) == leaders(cluster, "u") == {NO_LEADER})
        await cluster.start(1, 2, 3)
        await until(lambda: NO_LEADER not in leaders(cluster) | leaders(cluster, "u"))
        await until(lambda: all(set(item.isr) == {1, 2, 3} for item in partitions(cluster)))
        await cluster.machines[3].stop()
        assert 3 not in leaders(cluster) and is_fenced(cluster, 3)
        assert all(3 not in item.isr for item in partitions(cluster))

    run(10, scenario)


def test_a_broker_that_stops_leads_nothing_when_it_does() -> None:
    async def scenario(cluster: Cluster) -> None:
        epochs = {item.leader_epoch for item in partitions(cluster)}
        await cluster.machines[3].stop()
        assert leaders(cluster) == {1, 2} and is_fenced(cluster, 3)
        assert cluster.image(4).brokers[3].in_controlled_shutdown
        await cluster.start(3)
        assert cluster.image(4).brokers[3].is_active
        await until(lambda: all(set(item.isr) == {1, 2, 3} for item in partitions(cluster)))
        assert epochs == {0} and {item.leader_epoch for item in partitions(cluster)} == {0, 1}

    run(3, scenario)


def test_leaders_go_back_to_where_they_are_preferred() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.machines[3].stop()
        await cluster.start(3)
        await until(lambda: leaders(cluster) == {1, 2, 3})
        assert all(item.leader == item.replicas[0] for item in partitions(cluster))

    run(4, scenario, settings={"leader.imbalance.check.interval.seconds": "5"})


def test_an_unclean_election_waits_for_the_setting() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.machines[3].cut_power()
        await until(lambda: leaders(cluster) == {1, 2})
        cluster.machines[2].cut_power()
        cluster.machines[1].cut_power()
        await until(lambda: leaders(cluster) == {NO_LEADER})
        assert all(set(item.eligible_leader_replicas) == {1, 2} for item in partitions(cluster))
        await cluster.start(3)
        await asyncio.sleep(20)
        assert leaders(cluster) == {NO_LEADER}, "3 left the ISR before the others"
        change = AlterConfigsResource(2, TOPIC, [AlterableConfig(UNCLEAN, 0, "true")])
        await cluster.ask(3, IncrementalAlterConfigsRequest([change]), 1)
        await until(lambda: leaders(cluster) == {3}, 5)

    run(5, scenario)


def test_all_brokers_are_killed_at_once_and_come_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2, 3):
            cluster.machines[broker_id].cut_power()
        await cluster.start(1, 2, 3)
        await until(lambda: NO_LEADER not in leaders(cluster) | leaders(cluster, "u"))
        await until(lambda: all(set(item.isr) == {1, 2, 3} for item in partitions(cluster)))

    run(6, scenario)


def test_clients_see_which_replicas_are_offline() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.machines[3].stop()
        await until(lambda: is_fenced(cluster, 3) and bool(cluster.image(1).brokers[3].is_fenced))
        metadata = await cluster.ask(1, MetadataRequest([MetadataRequestTopic(name=TOPIC)]), 12)
        described = await cluster.ask(1, DescribeTopicPartitionsRequest([TopicRequest(TOPIC)]), 0)
        assert [broker.node_id for broker in metadata.brokers] == [1, 2]
        for response in (metadata, described):
            assert [item.offline_replicas for item in response.topics[0].partitions] == [[3]] * 3
            assert all(3 not in item.isr_nodes for item in response.topics[0].partitions)

    run(7, scenario)


def test_an_operator_elects_leaders() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.machines[3].stop()
        await cluster.start(3)
        await until(lambda: all(set(item.isr) == {1, 2, 3} for item in partitions(cluster)))
        response = await cluster.ask(1, ElectLeadersRequest(0, None), 2)
        assert [item.error_code for item in response.replica_election_results[0].partition_result] == [0]
        assert leaders(cluster) == {1, 2, 3}

    run(8, scenario)


def test_where_the_last_one_in_sync_lost_its_disk_those_that_were_killed_before_lead() -> None:
    """Nothing was committed without them. The empty one would have everybody else cut what they have."""

    async def scenario(cluster: Cluster) -> None:
        network = cluster.world.network
        for other in (2, 3):
            network.cut_both_ways("node1", f"node{other}")
            cluster.machines[other].cut_power()
        await until(lambda: all(set(item.isr) == {1} for item in partitions(cluster)))
        await cluster.start(2, 3)
        assert all(not item.eligible_leader_replicas for item in partitions(cluster)), "they were killed"
        cluster.machines[1].cut_power()
        cluster.replace_disk(1)
        await cluster.start(1)
        network.heal_all()
        await until(lambda: NO_LEADER not in leaders(cluster))
        assert leaders(cluster) <= {2, 3}
        await until(lambda: all(set(item.isr) == {1, 2, 3} for item in partitions(cluster)))

    run(10, scenario)
