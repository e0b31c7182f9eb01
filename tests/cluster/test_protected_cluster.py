"""Three nodes that reach each other with TLS, on the simulated network: handshakes stall and are dropped, links are cut
and connections lost, and nothing that was acknowledged is."""

import asyncio
from typing import Any

import pytest

from odradek.broker import settings
from odradek.broker.protection import Protection
from odradek.errors import ErrorCode
from odradek.net.security import Security
from odradek.net.simulated_greeting import NO_FAULTS, GreetingFaults, ProtectedTransport
from odradek.records.record import Record, build_batch
from odradek.serving.session import open_session
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.cluster.clusters import Cluster, new_cluster
from tests.simulation.connection import Disconnected

TOPIC = "t"
WRITES = 40


@pytest.fixture(autouse=True)
def protected_listeners_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulated network needs no certificates."""
    monkeypatch.setattr(settings, "check_listeners", lambda config: None)
    monkeypatch.setattr(Protection, "_link", lambda self, config, listener, protocol: Security(protocol))
    monkeypatch.setattr(Protection, "new_session_of", lambda self, config, image: open_session)


async def produce(cluster: Cluster, value: bytes) -> int:
    """Returns the offset of an acknowledged record."""
    while True:
        for node_id in cluster.machines:
            try:
                response = await cluster.ask(node_id, _request(cluster, node_id, value), 13)
            except Disconnected:
                continue
            partition = response.responses[0].partition_responses[0]
            if partition.error_code == ErrorCode.NONE:
                return int(partition.base_offset)
        await asyncio.sleep(0.1)


def _request(cluster: Cluster, node_id: int, value: bytes) -> ProduceRequest:
    batch = bytes(build_batch([Record(0, 1_700_000_000_000, b"k", value)]))
    topic_id = cluster.image(node_id).topics[TOPIC].id
    data = TopicProduceData(topic_id, TOPIC, [PartitionProduceData(0, batch)])
    return ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[data])


def log_end(cluster: Cluster, node_id: int) -> int:
    node = cluster.machines[node_id].node
    assert node is not None
    replica: Any = node.replicas.present(TOPIC, 0)
    return int(replica.log.end_offset)


@pytest.mark.parametrize("seed", range(4))
def test_greetings_that_fail_lose_no_record(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world, cluster = new_cluster(seed, is_protected=True)
    rng, handshakes = world.new_rng(), 0
    end_handshake = ProtectedTransport._end_handshake

    def counting(transport: ProtectedTransport) -> None:
        nonlocal handshakes
        handshakes += 1
        end_handshake(transport)

    monkeypatch.setattr(ProtectedTransport, "_end_handshake", counting)

    async def main() -> None:
        await cluster.start()
        response = await cluster.ask(1, CreateTopicsRequest([CreatableTopic(TOPIC, 1, 3)]), 7)
        assert [topic.error_code for topic in response.topics] == [0]
        async with asyncio.timeout(60):
            while not all(TOPIC in cluster.image(node_id).topics for node_id in cluster.machines):
                await asyncio.sleep(0.01)
        offsets = []
        for number in range(WRITES):
            trouble(cluster)
            async with asyncio.timeout(300):
                offsets.append(await produce(cluster, b"value %d" % number))
        world.network.greeting_faults = NO_FAULTS
        world.network.heal_all()
        assert offsets == sorted(set(offsets))
        async with asyncio.timeout(300):
            while any(log_end(cluster, node_id) <= offsets[-1] for node_id in cluster.machines):
                await asyncio.sleep(0.1)

    def trouble(cluster: Cluster) -> None:
        network = world.network
        network.greeting_faults = GreetingFaults(stall=0.15, drop=0.15)
        one, other = rng.sample([f"node{node_id}" for node_id in cluster.machines], 2)
        if rng.random() < 0.2:
            network.cut(one, other)
        elif rng.random() < 0.4:
            network.heal_all()
        if rng.random() < 0.5:
            network.drop_connections(one, other)

    world.run(main())
    assert handshakes > 30, "of both ends"
