"""Transactions as a partition sees them: the first batch is verified, a marker ends it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.model import ANONYMOUS, TRANSACTIONS_TOPIC, Caller
from odradek.serving.dispatch import Dispatcher
from odradek.serving.request import Request
from odradek.wire.codec import read_message
from odradek.wire.frame import SIZE, encode_request, read_request_header
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.broker.in_process import put
from tests.broker.transactional import (
    ALL_VERSIONS,
    OLD,
    OLDER,
    Transactional,
    batch_of,
    control_batch,
    produce,
)

NONE = ErrorCode.NONE


# --- who is asked, and what ---


def test_only_the_first_batch_of_a_transaction_is_verified(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            assert await broker.write(0, b"a", version=OLDER) is NONE
            assert await broker.write(1, b"b", version=OLDER) is NONE
            (asked,) = broker.coordinator.transactions
            assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("tx", 7, 0)
            assert asked.verify_only
            assert [(topic.name, topic.partitions) for topic in asked.topics] == [("t", [0])]
            assert [record.value for record in broker.records("t")] == [b"a", b"b"]

    asyncio.run(test())


def test_all_partitions_of_a_request_are_asked_about_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            assert await broker.write(0, partitions=(0, 1)) is NONE
            (asked,) = broker.coordinator.transactions
            assert asked.topics[0].partitions == [0, 1]

    asyncio.run(test())


def test_a_batch_without_a_transaction_asks_nobody(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            assert await broker.write(0, transactional=False) is NONE
            assert await broker.write(1, transactional=False, transactional_id=None) is NONE
            assert broker.coordinator.requests == []

    asyncio.run(test())


@pytest.mark.parametrize(
    "level, version, verify_only",
    [(2, ALL_VERSIONS, False), (2, OLDER, True), (1, ALL_VERSIONS, True), (0, OLD, True)],
)
def test_the_level_and_the_version_decide_who_adds_a_partition(
    tmp_path: Path, level: int, version: int, verify_only: bool
) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            if level != 2:
                await broker.use_transaction_version(level)
            assert await broker.write(0, version=version) is NONE
            assert [asked.verify_only for asked in broker.coordinator.transactions] == [verify_only]

    asyncio.run(test())


def test_verification_may_be_switched_off_for_clients_that_add_partitions(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path, transaction_partition_verification_enable="false") as broker:
            assert await broker.write(0, version=OLDER) is NONE
            assert broker.coordinator.requests == []
            assert await broker.write(0, version=ALL_VERSIONS, producer=8) is NONE
            assert len(broker.coordinator.requests) == 1

    asyncio.run(test())


def test_what_is_asked_together_goes_to_another_broker_in_one_request(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            put(broker.broker.services.node, "id", 2)
            writes = [
                broker.write(0, producer=producer, transactional_id=f"tx-{producer}") for producer in range(3)
            ]
            assert await asyncio.gather(*writes) == [NONE] * 3
            (request,) = broker.coordinator.requests
            assert [asked.transactional_id for asked in request.transactions] == ["tx-0", "tx-1", "tx-2"]

    asyncio.run(test())


def test_a_transactional_id_is_named_once_in_a_request(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            put(broker.broker.services.node, "id", 2)
            writes = [broker.write(0, partitions=(index,)) for index in range(2)]
            assert await asyncio.gather(*writes) == [NONE] * 2
            assert [len(request.transactions) for request in broker.coordinator.requests] == [1, 1]

    asyncio.run(test())


# --- what clients see ---


@pytest.mark.parametrize(
    "code, version, seen",
    [
        (ErrorCode.INVALID_TXN_STATE, OLD, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, OLD, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, OLDER, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, ALL_VERSIONS, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, OLD, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.PRODUCER_FENCED, ALL_VERSIONS, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ALL_VERSIONS, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.NOT_COORDINATOR, OLD, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ALL_VERSIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, OLDER, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, OLDER, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_what_a_refused_verification_looks_like(
    tmp_path: Path, code: ErrorCode, version: int, seen: ErrorCode
) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            broker.coordinator.codes = [code]
            assert await broker.write(0, version=version) is seen
            assert broker.records("t") == []
            assert await broker.write(0, version=version) is NONE

    asyncio.run(test())


def test_a_coordinator_that_cannot_be_reached_is_tried_again_by_the_client(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            broker.coordinator.failure = OSError("nobody is there")
            assert await broker.write(0) is ErrorCode.NOT_ENOUGH_REPLICAS
            broker.coordinator.failure = None
            assert (
                await broker.write(1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            )  # the first one comes first
            assert await broker.write(0) is NONE
            assert await broker.write(1) is NONE

    asyncio.run(test())


def test_a_whole_request_that_is_refused_is_refused_for_all_it_asks_about(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            broker.coordinator.refusal = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert await broker.write(0, partitions=(0, 1)) is ErrorCode.INVALID_TXN_STATE

    asyncio.run(test())


def test_without_the_topic_of_the_coordinators_there_is_none_to_ask(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path, has_coordinators=False) as broker:
            assert await broker.write(0) is ErrorCode.NOT_ENOUGH_REPLICAS
            assert broker.coordinator.requests == []

    asyncio.run(test())


def test_a_transaction_that_begins_while_the_last_one_ends_waits_a_moment(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            broker.coordinator.codes = [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
            assert await broker.write(0) is NONE
            assert len(broker.coordinator.requests) == 3

    asyncio.run(test())


def test_a_client_of_the_newest_protocol_is_told_that_its_last_transaction_is_still_ending(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            broker.coordinator.codes = [ErrorCode.CONCURRENT_TRANSACTIONS] * 1000
            assert await broker.write(0) is ErrorCode.CONCURRENT_TRANSACTIONS

    asyncio.run(test())


def test_a_batch_that_was_not_verified_is_told_nothing_about_the_log(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            broker.coordinator.codes = [ErrorCode.PRODUCER_FENCED]
            refused = await broker.ask(produce(0), ALL_VERSIONS)
            (result,) = refused.responses[0].partition_responses
            assert result.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
            assert (result.base_offset, result.log_start_offset) == (-1, -1)
            response = await broker.ask(produce(0), ALL_VERSIONS)
            assert response.responses[0].partition_responses[0].log_start_offset == 0

    asyncio.run(test())


def test_transactional_records_need_a_transactional_id(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert await broker.write(0, transactional_id=None) is refused
            assert await broker.write(0) is NONE
            assert await broker.write(1, transactional_id=None) is refused

    asyncio.run(test())


def test_a_request_is_of_one_producer(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            assert await broker.write(0, producer=7) is NONE
            assert await broker.write(0, producer=8, partitions=(1,), transactional_id="other") is NONE
            data = [
                PartitionProduceData(0, batch_of(1, producer=7)),
                PartitionProduceData(1, batch_of(1, producer=8)),
            ]
            message = ProduceRequest("tx", -1, 30_000, [TopicProduceData(name="t", partition_data=data)])
            response = await broker.ask(message, ALL_VERSIONS)
            codes = [result.error_code for result in response.responses[0].partition_responses]
            assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2

    asyncio.run(test())


def test_clients_write_no_control_batches(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            data = [PartitionProduceData(0, control_batch())]
            message = ProduceRequest("tx", -1, 30_000, [TopicProduceData(name="t", partition_data=data)])
            response = await broker.ask(message, ALL_VERSIONS)
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD
            assert broker.broker.replicas.get("t", 0).log.end_offset == 0

    asyncio.run(test())


def test_clients_write_to_no_internal_topic(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            for transactional in (False, True):
                refused = await broker.write(0, topic=TRANSACTIONS_TOPIC, transactional=transactional)
                assert refused is ErrorCode.INVALID_TOPIC_EXCEPTION
            assert broker.broker.replicas.get(TRANSACTIONS_TOPIC, 0).log.end_offset == 0

    asyncio.run(test())


# --- the end of a transaction, and what comes late ---


def test_a_transaction_that_ends_while_it_is_verified_takes_no_batch(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            broker.coordinator.may_answer.clear()
            late = asyncio.create_task(broker.write(0, version=OLDER))
            await broker.coordinator.was_asked.wait()
            assert await broker.end(is_commit=False, epoch=0, transaction_version=1) == [NONE]
            broker.coordinator.may_answer.set()
            assert await late is ErrorCode.INVALID_TXN_STATE
            assert broker.records("t") == []

    asyncio.run(test())


def test_a_late_batch_does_not_join_the_next_transaction(tmp_path: Path) -> None:
    """Both have the same epoch, as before transaction.version 2."""

    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            broker.coordinator.may_answer.clear()
            late = asyncio.create_task(broker.write(0, b"late", version=OLDER))
            await broker.coordinator.was_asked.wait()
            assert await broker.end(is_commit=False, epoch=0, transaction_version=1) == [NONE]
            broker.coordinator.was_asked.clear()
            current = asyncio.create_task(broker.write(0, b"current", version=OLDER))
            await broker.coordinator.was_asked.wait()
            broker.coordinator.may_answer.set()
            assert await late is ErrorCode.INVALID_TXN_STATE
            assert await current is NONE
            assert [record.value for record in broker.records("t")] == [b"current"]

    asyncio.run(test())


def test_a_batch_of_a_transaction_that_has_ended_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            assert await broker.write(0) is NONE
            assert await broker.end() == [NONE]
            assert await broker.write(1) is ErrorCode.INVALID_PRODUCER_EPOCH
            assert await broker.write(0, epoch=1) is NONE  # the next one

    asyncio.run(test())


def test_plain_records_within_a_transaction_are_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            assert await broker.write(0) is NONE
            assert await broker.write(1, transactional=False) is ErrorCode.INVALID_TXN_STATE

    asyncio.run(test())


# --- the order of requests ---


class Sent:
    """Produce requests that arrived together on one connection."""

    def __init__(self, broker: Transactional, *messages: ProduceRequest) -> None:
        self.dispatcher = Dispatcher(broker.broker.services)
        self.responses: list[Request] = []
        self.count = len(messages)
        self._all_answered = asyncio.Event()
        for message in messages:
            frame = memoryview(encode_request(message, 0, ALL_VERSIONS, 0, "test"))[SIZE.size :]
            header = read_request_header(frame)
            request = Request(
                header,
                Caller(ANONYMOUS, "127.0.0.1:1", "PLAINTEXT", header.client_id),
                self._answered,
                self.dispatcher.turns,
            )
            self.dispatcher.dispatch(request, frame, header.body)
        self.effect = self.dispatcher.finish()

    def _answered(self, request: Request) -> None:
        self.responses.append(request)
        if len(self.responses) == self.count:
            self._all_answered.set()

    async def codes(self) -> list[int]:
        await self._all_answered.wait()
        return [code_of(response) for response in self.responses]


def test_requests_behind_one_that_is_verified_keep_their_order(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            broker.coordinator.may_answer.clear()
            sent = Sent(broker, *[produce(sequence, b"%d" % sequence) for sequence in range(5)])
            assert sent.effect is not None
            working = asyncio.ensure_future(sent.effect)
            await broker.coordinator.was_asked.wait()
            assert sent.responses == []
            broker.coordinator.may_answer.set()
            await working
            assert await sent.codes() == [NONE] * 5
            assert [record.value for record in broker.records("t")] == [b"0", b"1", b"2", b"3", b"4"]
            assert len(broker.coordinator.requests) == 1

    asyncio.run(test())


def test_what_arrives_together_is_asked_about_once(tmp_path: Path) -> None:
    """Some clients send a request for each partition."""

    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            sent = Sent(broker, produce(0, partitions=(0,)), produce(0, partitions=(1,)), produce(1))
            assert sent.effect is not None
            await sent.effect
            assert await sent.codes() == [NONE] * 3
            (asked,) = broker.coordinator.transactions
            assert asked.topics[0].partitions == [0, 1]

    asyncio.run(test())


def test_each_of_those_that_arrive_together_gets_its_own_answer(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            broker.coordinator.codes = [ErrorCode.INVALID_TXN_STATE]
            sent = Sent(
                broker,
                produce(0, producer=1, transactional_id="refused"),
                produce(0, producer=2, transactional_id=None),
                produce(0, producer=3, transactional_id="verified"),
                produce(0, producer=4, transactional=False),
            )
            assert sent.effect is not None
            await sent.effect
            assert await sent.codes() == [
                ErrorCode.INVALID_TXN_STATE,
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                NONE,
                NONE,
            ]

    asyncio.run(test())


def code_of(response: Request) -> int:
    message: Any = read_message(ProduceResponse, ALL_VERSIONS, b"".join(map(bytes, response.parts or ())), 9)[
        0
    ]
    code: int = message.responses[0].partition_responses[0].error_code
    return code
