"""Rare events in the life of a transaction, as scripts on a cluster: its topic is deleted, or made again; its id
expires.
"""

import asyncio
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from tests.cluster.clusters import new_cluster
from tests.transactions.tempest import EXPIRATION_MS, EXPIRING_SETTINGS, SETTINGS
from tests.transactions.test_transaction_scripts import (
    END_VERSION,
    HANGING_AFTER_SECONDS,
    ID,
    TIMEOUT_MS,
    Script,
)

LONG_SECONDS = 3 * EXPIRATION_MS / 1000


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_transaction_ends_though_its_topic_was_deleted(is_made_again: bool) -> None:
    world, cluster = new_cluster(1, settings=SETTINGS)
    script = Script(world, cluster)

    async def scenario() -> None:
        await script.begin()
        await script.produce(0)
        before = cluster.image(script.coordinator).topics["apple"].id
        deleted = await cluster.ask(1, DeleteTopicsRequest([DeleteTopicState("apple")], timeout_ms=1_000), 6)
        assert deleted.responses[0].error_code == ErrorCode.NONE
        if is_made_again:
            await cluster.ask(1, CreateTopicsRequest([CreatableTopic("apple", 3, 3)], 1_000), 7)
            await until(lambda: "apple" in cluster.image(script.coordinator).topics)
            assert cluster.image(script.coordinator).topics["apple"].id != before
        await script.commit()
        await script.until_complete(HANGING_AFTER_SECONDS)
        if is_made_again:
            await script.produce(0)
            await script.commit()
            await script.until_complete(HANGING_AFTER_SECONDS)
            node = cluster.machines[script.leader_of(0)].node
            replica = node.replicas.present("apple", 0) if node is not None else None
            assert replica is not None and replica.last_stable_offset == replica.log.end_offset

    async def until(condition: Any) -> None:
        while not condition():
            await asyncio.sleep(0.01)

    world.run(scenario())


def test_an_id_expires_once_its_transaction_has_ended_and_its_producer_is_fenced() -> None:
    world, cluster = new_cluster(2, settings={**SETTINGS, **EXPIRING_SETTINGS})
    script = Script(world, cluster)

    async def described() -> Any:
        response = await cluster.ask(script.coordinator, DescribeTransactionsRequest([ID]), 0)
        return response.transaction_states[0]

    async def scenario() -> None:
        await script.begin()
        await script.produce(0)
        await asyncio.sleep(LONG_SECONDS)
        ongoing = await described()
        assert ongoing.transaction_state == "Ongoing"
        await script.commit()
        await script.until_complete(HANGING_AFTER_SECONDS)
        await asyncio.sleep(LONG_SECONDS)
        assert (await described()).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        late = EndTxnRequest(ID, ongoing.producer_id, ongoing.producer_epoch, committed=True)
        refused = await cluster.ask(script.coordinator, late, END_VERSION)
        assert refused.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        again = await cluster.ask(script.coordinator, InitProducerIdRequest(ID, TIMEOUT_MS), 5)
        assert (again.error_code, again.producer_epoch) == (ErrorCode.NONE, 0)
        assert again.producer_id != ongoing.producer_id

    world.run(scenario())
