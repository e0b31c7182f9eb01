"""Bugs that seeds of the simulated transactions have found, each as a short script."""

import asyncio
from typing import Any

from odradek.errors import ErrorCode
from odradek.records.record import Record, build_batch
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.cluster.clusters import Cluster, new_cluster
from tests.cluster.router import TRANSACTION
from tests.simulation.world import World
from tests.transactions.tempest import SETTINGS

ID = "worker"
TIMEOUT_MS = 60_000
PRODUCE_VERSION, END_VERSION = 12, 5
HANGING_AFTER_SECONDS = 10.0


class Script:
    """A producer with transactions in one partition of a topic."""

    def __init__(self, world: World, cluster: Cluster) -> None:
        self.world = world
        self.cluster = cluster
        self.coordinator = -1
        self.leader = -1
        self._producer = (-1, -1)

    async def begin(self) -> None:
        await self.cluster.start()
        await self._until_done(
            lambda: self.cluster.ask(1, CreateTopicsRequest([CreatableTopic("apple", 3, 3)], 1_000), 7),
            lambda response: response.topics[0].error_code,
        )
        find = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[ID])
        found = await self._until_done(
            lambda: self.cluster.ask(1, find, 6), lambda response: response.coordinators[0].error_code
        )
        self.coordinator = found.coordinators[0].node_id
        response = await self._until_done(
            lambda: self.cluster.ask(self.coordinator, InitProducerIdRequest(ID, TIMEOUT_MS), 5),
            lambda response: response.error_code,
        )
        self._producer = response.producer_id, response.producer_epoch

    async def _until_done(self, ask: Any, code_of: Any) -> Any:
        while True:
            response = await ask()
            if code_of(response) == ErrorCode.NONE:
                return response
            await asyncio.sleep(0.05)

    async def produce(self, index: int) -> None:
        producer_id, epoch = self._producer
        batch = build_batch(
            [Record(0, 0, b"key", b"value")],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        topic = TopicProduceData(name="apple", partition_data=[PartitionProduceData(index, bytes(batch))])
        request = ProduceRequest(ID, -1, 1_000, [topic])
        await self._until_done(
            lambda: self.cluster.ask(self.leader_of(index), request, PRODUCE_VERSION),
            lambda response: response.responses[0].partition_responses[0].error_code,
        )

    def leader_of(self, index: int) -> int:
        partition = self.cluster.image(self.coordinator).partition("apple", index)
        return int(partition.leader)

    async def commit(self) -> None:
        request = EndTxnRequest(ID, *self._producer, committed=True)
        response = await self._until_done(
            lambda: self.cluster.ask(self.coordinator, request, END_VERSION),
            lambda response: response.error_code,
        )
        self._producer = response.producer_id, response.producer_epoch

    async def until_complete(self, seconds: float) -> None:
        end = self.world.now() + seconds
        while True:
            response = await self.cluster.ask(self.coordinator, DescribeTransactionsRequest([ID]), 0)
            state = response.transaction_states[0].transaction_state
            if state == "CompleteCommit":
                return
            assert self.world.now() < end, state
            await asyncio.sleep(0.05)


def test_markers_find_the_next_leader_of_one_that_lost_its_power_without_a_word() -> None:
    """They were on their way to it, on a connection that nobody had closed."""
    world, cluster = new_cluster(1, settings=SETTINGS)
    script = Script(world, cluster)

    async def scenario() -> None:
        await script.begin()
        index = next(index for index in range(3) if script.leader_of(index) != script.coordinator)
        await script.produce(index)
        await script.commit()
        await script.until_complete(HANGING_AFTER_SECONDS)
        await script.produce(index)
        cluster.machines[script.leader_of(index)].cut_power()
        await script.commit()
        await script.until_complete(HANGING_AFTER_SECONDS)

    world.run(scenario())
