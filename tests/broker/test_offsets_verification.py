"""Tests of what is verified before a group's offsets become part of a transaction: see
`services.coordination.verification`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from odradek.model import OFFSETS_TOPIC
from odradek.records.batch import read_header
from odradek.storage.producers.markers import TransactionEnd
from tests.broker.transactional import Transactional, batch_of

NONE = ErrorCode.NONE
ADDS, KNOWS_ABORTABLE, OLD = 5, 4, 3  # versions of TxnOffsetCommit


def with_groups(
    tmp_path: Path, scenario: Callable[[Transactional], Awaitable[None]], **settings: str
) -> None:
    async def test() -> None:
        async with Transactional(tmp_path, **settings) as broker:
            await broker.create_topic(OFFSETS_TOPIC, 2)
            await scenario(broker)

    asyncio.run(test())


def verify(broker: Transactional, version: int, partition: int = 1) -> Awaitable[ErrorCode]:
    return broker.broker.services.coordination.verification.verify_offsets(version, "tx", 7, 0, partition)


def commit_offsets(broker: Transactional) -> None:
    """Verify like the group coordinator: the transaction is open from then on."""
    batch = bytearray(batch_of(-1))
    leader = broker.broker.replicas.leader(OFFSETS_TOPIC, 1)
    leader.append(batch, read_header(batch), 0, check_sequence=False)


@pytest.mark.parametrize("version, verify_only", [(ADDS, False), (KNOWS_ABORTABLE, True), (OLD, True)])
def test_only_what_begins_the_transaction_is_asked_about(
    tmp_path: Path, version: int, verify_only: bool
) -> None:
    async def scenario(broker: Transactional) -> None:
        assert await verify(broker, version) is NONE
        commit_offsets(broker)
        assert await verify(broker, version) is NONE
        (asked,) = broker.coordinator.transactions
        assert asked.verify_only is verify_only
        assert [(topic.name, topic.partitions) for topic in asked.topics] == [(OFFSETS_TOPIC, [1])]

    with_groups(tmp_path, scenario)


@pytest.mark.parametrize(
    "code, version, seen",
    [
        (ErrorCode.PRODUCER_FENCED, ADDS, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, KNOWS_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, OLD, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NOT_COORDINATOR, OLD, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.CONCURRENT_TRANSACTIONS, OLD, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_what_a_refusal_looks_like(tmp_path: Path, code: ErrorCode, version: int, seen: ErrorCode) -> None:
    async def scenario(broker: Transactional) -> None:
        broker.coordinator.codes = [code]
        assert await verify(broker, version) is seen

    with_groups(tmp_path, scenario)


def test_a_coordinator_that_cannot_be_reached_looks_like_one_that_loads(tmp_path: Path) -> None:
    async def scenario(broker: Transactional) -> None:
        broker.coordinator.failure = OSError("nobody is there")
        assert await verify(broker, ADDS) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    with_groups(tmp_path, scenario)


def test_a_partition_that_is_not_here_belongs_to_another_coordinator(tmp_path: Path) -> None:
    async def scenario(broker: Transactional) -> None:
        assert await verify(broker, ADDS, partition=9) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert broker.coordinator.requests == []

    with_groups(tmp_path, scenario)


def test_a_transaction_that_ends_while_it_is_verified_takes_no_offsets(tmp_path: Path) -> None:
    async def scenario(broker: Transactional) -> None:
        broker.coordinator.may_answer.clear()
        waiting = asyncio.ensure_future(verify(broker, OLD))
        await broker.coordinator.was_asked.wait()
        leader = broker.broker.replicas.leader(OFFSETS_TOPIC, 1)
        leader.append_marker(
            TransactionEnd(
                producer_id=7, producer_epoch=0, coordinator_epoch=0, is_commit=False, transaction_version=1
            ),
            0,
        )
        broker.coordinator.may_answer.set()
        assert await waiting is ErrorCode.INVALID_TXN_STATE

    with_groups(tmp_path, scenario)


def test_verification_may_be_switched_off(tmp_path: Path) -> None:
    async def scenario(broker: Transactional) -> None:
        assert await verify(broker, OLD) is NONE
        assert broker.coordinator.requests == []
        assert await verify(broker, ADDS) is NONE
        assert len(broker.coordinator.requests) == 1

    with_groups(tmp_path, scenario, transaction_partition_verification_enable="false")
