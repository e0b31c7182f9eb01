"""Bugs that seeds of the simulated cluster have found, each as a short script."""

import asyncio

from odradek.errors import ErrorCode
from odradek.records.record import Record, build_batch
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from tests.cluster.clusters import CLUSTER_ID, Cluster, new_cluster
from tests.cluster.plan import SETTINGS
from tests.cluster.storm import SETTINGS as STORM_SETTINGS
from tests.simulation.world import World


def create(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name, 1, 1) for name in names], timeout_ms=1_000)


def three_nodes(seed: int) -> tuple[World, Cluster]:
    return new_cluster(seed, settings=SETTINGS)


def test_a_node_stops_cleanly_while_a_sync_of_the_metadata_log_is_under_way() -> None:
    world, cluster = three_nodes(1)

    async def scenario() -> None:
        await cluster.start()
        (leader,) = cluster.leaders()
        machine = cluster.machines[leader]
        assert machine.host is not None
        machine.host.max_work_seconds = 1.0
        connection = await world.connect("alice", machine)
        connection.send(create("apple"))
        await asyncio.sleep(0.02)
        await machine.stop()
        machine.max_work_seconds = None
        await machine.start()

    world.run(scenario())


def test_a_broker_registers_once_the_controllers_disk_has_space_again() -> None:
    world, cluster = new_cluster(2, controllers=(1, 2, 3), brokers=(101,), settings=SETTINGS)

    async def scenario() -> None:
        await cluster.start(1, 2, 3)
        (leader,) = cluster.leaders()
        cluster.machines[leader].fill_disk(0)
        world.loop.call_later(1.0, cluster.machines[leader].heal)
        await cluster.start(101)
        response = await cluster.ask(101, create("apple"), 7)
        assert response.topics[0].error_code == ErrorCode.NONE

    world.run(scenario())


def test_a_node_that_becomes_the_controller_removes_a_voter_itself() -> None:
    """It was about to forward the request."""
    world, cluster = three_nodes(3)

    async def scenario() -> None:
        await cluster.start()
        (leader,) = cluster.leaders()
        others = [node_id for node_id in cluster.machines if node_id != leader]
        cluster.machines[leader].cut_power()
        request = RemoveRaftVoterRequest(CLUSTER_ID, leader, cluster.key(leader).directory_id)
        responses = []

        async def ask(node_id: int) -> None:
            responses.append((await cluster.ask(node_id, request, 0)).error_code)

        for task in [world.spawn(ask(node_id)) for node_id in others]:
            await task
        assert ErrorCode.UNKNOWN_SERVER_ERROR not in responses

    world.run(scenario())


def test_what_was_written_before_a_restart_is_compacted() -> None:
    world, cluster = new_cluster(4, settings={**SETTINGS, "log.cleaner.enable": "false"})
    configs = [
        CreatableTopicConfig("cleanup.policy", "compact"),
        CreatableTopicConfig("internal.segment.bytes", "100"),
    ]
    records = bytes(build_batch([Record(0, 0, b"key", b"value")]))
    topic = TopicProduceData(name="apple", partition_data=[PartitionProduceData(0, records)])

    def size_of_log() -> int:
        node = cluster.machines[cluster.image(1).partition("apple", 0).leader].node
        replica = node.replicas.present("apple", 0) if node is not None else None
        assert replica is not None
        return replica.log.size_bytes

    async def scenario() -> None:
        await cluster.start()
        request = CreateTopicsRequest([CreatableTopic("apple", 1, 1, configs=configs)], 1_000)
        assert (await cluster.ask(1, request, 7)).topics[0].error_code == ErrorCode.NONE
        leader = cluster.image(1).partition("apple", 0).leader
        for _ in range(5):
            response = await cluster.ask(leader, ProduceRequest(None, -1, 1_000, [topic]), 12)
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        written = size_of_log()
        for machine in cluster.machines.values():
            await machine.stop()
            machine.configure({"log.cleaner.enable": "true", "log.cleaner.backoff.ms": "100"})
        await cluster.start()
        end = world.now() + 10.0
        while size_of_log() >= written:
            assert world.now() < end, "it is not compacted"
            await asyncio.sleep(0.1)

    world.run(scenario())


def test_a_follower_whose_retention_works_while_it_fetches_hears_what_is_committed() -> None:
    world, cluster = new_cluster(5, settings={**STORM_SETTINGS, "replica.fetch.wait.max.ms": "400"})
    records = bytes(build_batch([Record(0, 0, b"key", b"value")]))
    topic = TopicProduceData(name="apple", partition_data=[PartitionProduceData(0, records)])

    async def scenario() -> None:
        await cluster.start()
        configs = [CreatableTopicConfig("retention.ms", "-1")]
        request = CreateTopicsRequest([CreatableTopic("apple", 1, 3, configs=configs)], 1_000)
        assert (await cluster.ask(1, request, 7)).topics[0].error_code == ErrorCode.NONE
        leader = cluster.image(1).partition("apple", 0).leader
        for _ in range(3):
            response = await cluster.ask(leader, ProduceRequest(None, -1, 1_000, [topic]), 12)
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        node = cluster.machines[leader % 3 + 1].node
        replica = node.replicas.present("apple", 0) if node is not None else None
        assert replica is not None
        assert replica.high_watermark < replica.log.end_offset == 3, "its fetch does not wait at the leader"
        replica.log.delete_records_before(1)
        await asyncio.sleep(10.0)
        assert replica.high_watermark == 3

    world.run(scenario())
