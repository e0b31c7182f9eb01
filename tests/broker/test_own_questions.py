"""Tests of what a broker asks itself about transactions: the messages of brokers, with a response at once where that
can be.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from odradek.errors import ErrorCode
from odradek.model import ANONYMOUS, Caller
from odradek.serving.dispatch import Dispatcher
from odradek.serving.request import Request
from odradek.wire.frame import SIZE, encode_request, read_request_header
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.in_process import InProcess
from tests.broker.test_transaction_requests import Talk
from tests.broker.transactional import batch_of

TIMEOUT_S = 60
OWN_ID, BROKERS_VERSION = 1, 5
ADDS, VERIFIED = 12, 11  # versions of Produce


def run(path: Path, scenario: Callable[[Talk], Awaitable[None]], *, synced: bool) -> None:
    settings = {"log.sync.commit": str(synced).lower(), "transaction.state.log.num.partitions": "1"}

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), InProcess(str(path), settings=settings) as broker:
            talk = Talk(broker)
            await talk.begin()
            assert await talk.initialize() is ErrorCode.NONE
            await scenario(talk)

    asyncio.run(main())


def question(talk: Talk, *partitions: int, verify_only: bool) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic("t", list(partitions))]
    return AddPartitionsToTxnRequest(
        [AddPartitionsToTxnTransaction("tx", *talk.producer, verify_only=verify_only, topics=topics)]
    )


def codes(response: Any) -> list[int]:
    assert isinstance(response, AddPartitionsToTxnResponse)
    (result,) = response.results_by_transaction
    return [
        each.partition_error_code for topic in result.topic_results for each in topic.results_by_partition
    ]


def begin_to_produce(talk: Talk, version: int) -> tuple[Request, Any]:
    """A first batch for partition 0, in memory that is overwritten at once; also what its connection waits for."""
    producer, epoch = talk.producer
    data = [PartitionProduceData(0, batch_of(0, producer=producer, epoch=epoch))]
    message = ProduceRequest("tx", -1, 30_000, [TopicProduceData(name="t", partition_data=data)])
    memory = encode_request(message, 0, version, 1, "test")
    frame = memoryview(memory)[SIZE.size :]
    header = read_request_header(frame)
    dispatcher = Dispatcher(talk.broker.broker.services)
    request = Request(
        header,
        Caller(ANONYMOUS, "127.0.0.1:1", "PLAINTEXT", header.client_id),
        lambda request: None,
        dispatcher.turns,
    )
    effect = dispatcher.dispatch(request, frame, header.body) or dispatcher.finish()
    memory[:] = bytes(len(memory))
    return request, effect


def test_a_coordinator_here_that_waits_for_nothing_answers_at_once(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        assert await talk.add(0) == [ErrorCode.NONE]
        message = question(talk, 0, 1, verify_only=True)
        response = talk.broker.broker.services.coordination.peers.ask(
            OWN_ID, message, BROKERS_VERSION, TIMEOUT_S
        )
        assert codes(response) == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]

    run(tmp_path, scenario, synced=True)


def test_one_that_has_to_commit_first_is_awaited(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        peers = talk.broker.broker.services.coordination.peers
        adding = peers.ask(OWN_ID, question(talk, 0, verify_only=False), BROKERS_VERSION, TIMEOUT_S)
        asking = peers.ask(OWN_ID, question(talk, 0, verify_only=True), BROKERS_VERSION, TIMEOUT_S)
        assert isinstance(adding, Awaitable) and isinstance(asking, Awaitable)
        for response in await asyncio.gather(adding, asking):
            assert codes(response) == [ErrorCode.NONE]

    run(tmp_path, scenario, synced=True)


def test_the_first_batch_of_a_transaction_is_appended_when_it_comes(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        assert await talk.add(0) == [ErrorCode.NONE]
        request, effect = begin_to_produce(talk, VERIFIED)
        assert effect is None and request.is_answered
        assert len(talk.broker.records("t")) == 1

    run(tmp_path, scenario, synced=False)


def test_it_waits_for_the_record_that_adds_its_partition(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        _, effect = begin_to_produce(talk, ADDS)
        assert effect is not None and not talk.broker.records("t")
        await effect
        assert [record.value for record in talk.broker.records("t")] == [b"x"]

    run(tmp_path, scenario, synced=True)
