"""Transactions on a whole broker, asked frame by frame: both protocols from InitProducerId to what consumers see."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.coordinators.routing import partition_of
from odradek.errors import ErrorCode, KafkaError
from odradek.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.list_transactions import ListTransactionsRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.in_process import InProcess, put, whole_batches
from tests.broker.transactional import batch_of, visible

NONE = ErrorCode.NONE
TIMEOUT_S = 60
SETTINGS = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "2"}


class Talk:
    """A producer with the transactional id `tx`, on a topic `t` of two partitions."""

    def __init__(self, broker: InProcess) -> None:
        self.broker = broker
        self.producer = (-1, -1)

    async def begin(self, level: int = 2) -> None:
        await self.broker.create_topic("t", 2)
        if level != 2:
            update = FeatureUpdateKey("transaction.version", level, upgrade_type=2)
            response = await self.broker.ask(UpdateFeaturesRequest(60_000, [update]), 1)
            assert response.error_code == 0
        await self.find()

    async def find(self, *keys: str) -> Any:
        message = FindCoordinatorRequest("", 1, list(keys) or ["tx"])
        return (await self.broker.ask(message, 6)).coordinators

    async def initialize(
        self, version: int = 5, timeout_ms: int = 60_000, transactional_id: str = "tx", **expected: int
    ) -> ErrorCode:
        message = InitProducerIdRequest(transactional_id, timeout_ms, **expected)
        response = await self.broker.ask(message, version)
        if not response.error_code:
            self.producer = (response.producer_id, response.producer_epoch)
        return ErrorCode(response.error_code)

    async def add(
        self, *partitions: int, topic: str = "t", version: int = 3, producer: tuple[int, int] | None = None
    ) -> list[ErrorCode]:
        message = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=(producer or self.producer)[0],
            v3_and_below_producer_epoch=(producer or self.producer)[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, list(partitions))],
        )
        response = await self.broker.ask(message, version)
        results = response.results_by_topic_v3_and_below[0].results_by_partition
        return [ErrorCode(each.partition_error_code) for each in results]

    async def end(
        self, *, commit: bool, version: int = 5, producer: tuple[int, int] | None = None
    ) -> ErrorCode:
        response = await self.broker.ask(EndTxnRequest("tx", *(producer or self.producer), commit), version)
        if response.producer_id >= 0:
            self.producer = (response.producer_id, response.producer_epoch)
        return ErrorCode(response.error_code)

    async def write(self, sequence: int, value: bytes, version: int = 12, **options: Any) -> ErrorCode:
        producer_id, epoch = options.get("producer", self.producer)
        batch = batch_of(sequence, value, producer=producer_id, epoch=epoch)
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(0, batch)])
        if version >= 13:
            raise NotImplementedError
        response = await self.broker.ask(ProduceRequest("tx", -1, 30_000, [data]), version)
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    async def describe(self, *ids: str) -> Any:
        response = await self.broker.ask(DescribeTransactionsRequest(list(ids) or ["tx"]), 0)
        return response.transaction_states

    async def until(self, state: str) -> Any:
        while (found := (await self.describe())[0]).transaction_state != state:
            await asyncio.sleep(0)
        return found

    async def list(self, version: int = 2, **filters: Any) -> Any:
        return await self.broker.ask(ListTransactionsRequest(**filters), version)

    async def committed_values(self) -> Any:
        """Return what a `read_committed` consumer makes of partition 0."""
        values: list[bytes | None] = []
        offset = 0
        while True:
            wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
            topic = FetchTopic(topic="t", partitions=[wanted])
            message = FetchRequest(max_wait_ms=0, max_bytes=1 << 20, isolation_level=1, topics=[topic])
            response = (await self.broker.ask(message, 11)).responses[0].partitions[0]
            if not response.records:
                return values
            values += visible(response)
            *_, (last, _) = whole_batches(memoryview(response.records))
            offset = last.next_offset


Scenario = Callable[[Talk], Awaitable[None]]


def run(path: Path, scenario: Scenario, **settings: str) -> None:
    async def main() -> None:
        chosen = {name.replace("_", "."): value for name, value in settings.items()}
        async with (
            asyncio.timeout(TIMEOUT_S),
            InProcess(str(path), settings={**SETTINGS, **chosen}) as broker,
        ):
            await scenario(Talk(broker))

    asyncio.run(main())


# --- the protocols ---


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_older_protocol(tmp_path: Path, level: int) -> None:
    async def scenario(talk: Talk) -> None:
        await talk.begin(level)
        assert await talk.initialize(version=4) is NONE
        for number, commit in enumerate([True, False, True]):
            assert await talk.add(0) == [NONE]
            assert await talk.write(number, b"%d" % number, version=11) is NONE
            assert await talk.end(commit=commit, version=4) is NONE
            await talk.until("CompleteCommit" if commit else "CompleteAbort")
        assert talk.producer[1] == 0
        assert await talk.committed_values() == [b"0", b"2"]

    run(tmp_path, scenario)


def test_version_2(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        await talk.begin()
        assert await talk.initialize() is NONE
        for number, commit in enumerate([True, False, True]):
            assert await talk.write(0, b"%d" % number) is NONE
            assert await talk.end(commit=commit) is NONE
            assert talk.producer[1] == number + 1
        await talk.until("CompleteCommit")
        assert await talk.committed_values() == [b"0", b"2"]

    run(tmp_path, scenario)


def test_a_late_write_of_the_last_transaction_does_not_join_the_next(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        await talk.begin()
        await talk.initialize()
        first = talk.producer
        assert await talk.write(0, b"a") is NONE
        assert await talk.end(commit=True) is NONE
        await talk.until("CompleteCommit")
        assert await talk.write(0, b"b") is NONE
        assert await talk.write(1, b"late", producer=first) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await talk.end(commit=True) is NONE
        await talk.until("CompleteCommit")
        assert await talk.committed_values() == [b"a", b"b"]

    run(tmp_path, scenario)


def test_a_fenced_producer_gets_the_error_of_its_age(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        await talk.begin()
        await talk.initialize()
        old = talk.producer
        await talk.initialize()
        assert await talk.end(commit=True, producer=old) is ErrorCode.PRODUCER_FENCED
        assert await talk.end(commit=True, producer=old, version=2) is ErrorCode.PRODUCER_FENCED
        assert await talk.end(commit=True, producer=old, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await talk.add(0, producer=old) == [ErrorCode.PRODUCER_FENCED]
        assert await talk.add(0, 1, producer=old, version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH] * 2
        expected = {"producer_id": old[0], "producer_epoch": old[1]}
        assert await talk.initialize(version=4, **expected) is ErrorCode.PRODUCER_FENCED
        assert await talk.initialize(version=3, **expected) is ErrorCode.INVALID_PRODUCER_EPOCH
        offsets = AddOffsetsToTxnRequest("tx", *old, "g")
        assert (await talk.broker.ask(offsets, 2)).error_code == ErrorCode.PRODUCER_FENCED
        assert (await talk.broker.ask(offsets, 1)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH

    run(tmp_path, scenario)


def test_a_new_producer_takes_over(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        await talk.begin()
        await talk.initialize()
        await talk.write(0, b"open")
        assert await talk.initialize() is ErrorCode.CONCURRENT_TRANSACTIONS
        await talk.until("CompleteAbort")
        assert await talk.initialize() is NONE
        assert await talk.committed_values() == []

    run(tmp_path, scenario)


def test_a_silent_producer_is_timed_out(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        await talk.begin()
        await talk.initialize(timeout_ms=1)
        await talk.write(0, b"open")
        await talk.until("CompleteAbort")
        assert await talk.write(1, b"late", producer=(talk.producer[0], 0)) is not NONE
        assert await talk.committed_values() == []

    run(tmp_path, scenario)


# --- what is refused ---


def test_requests_without_a_transactional_id(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        await talk.begin()
        assert await talk.initialize(transactional_id="") is ErrorCode.INVALID_REQUEST
        assert (
            await talk.broker.ask(EndTxnRequest("", 1, 0, True), 5)
        ).error_code == ErrorCode.INVALID_REQUEST
        (found,) = await talk.describe("")
        assert found.error_code == ErrorCode.INVALID_REQUEST

    run(tmp_path, scenario)


def test_requests_without_a_transactional_id_are_invalid_whoever_coordinates(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        await talk.broker.create_topic("t", 2)
        ended = await talk.broker.ask(EndTxnRequest("", 1, 0, True), 5)
        assert ended.error_code == ErrorCode.INVALID_REQUEST
        nameless, unknown = await talk.describe("", "tx")
        assert nameless.error_code == ErrorCode.INVALID_REQUEST
        assert unknown.error_code == ErrorCode.NOT_COORDINATOR
        asked = AddPartitionsToTxnTransaction("", 1, 0, True, [AddPartitionsToTxnTopic("t", [0])])
        response = await talk.broker.ask(AddPartitionsToTxnRequest([asked]), 5)
        (result,) = response.results_by_transaction[0].topic_results[0].results_by_partition
        assert result.partition_error_code == ErrorCode.INVALID_REQUEST

    run(tmp_path, scenario)


def test_the_timeout_has_a_limit(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        await talk.begin()
        assert await talk.initialize(timeout_ms=5_001) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert await talk.initialize(timeout_ms=5_000) is NONE

    run(tmp_path, scenario, transaction_max_timeout_ms="5000")


def test_a_partition_that_does_not_exist_keeps_the_others_out(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        await talk.begin()
        await talk.initialize()
        assert await talk.add(0, 7) == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await talk.add(0, topic="nowhere") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await talk.add(0, topic=TRANSACTIONS_TOPIC) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        (found,) = await talk.describe()
        assert found.transaction_state == "Empty"

    run(tmp_path, scenario)


def test_without_coordinators_nobody_is_the_coordinator(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        assert await talk.initialize() is ErrorCode.NOT_COORDINATOR
        assert await talk.end(commit=True, producer=(1, 0)) is ErrorCode.NOT_COORDINATOR
        (found,) = await talk.describe()
        assert found.error_code == ErrorCode.NOT_COORDINATOR
        listed = await talk.list(state_filters=["Ongoing", "Odd"])
        assert (listed.error_code, listed.transaction_states) == (0, [])
        assert listed.unknown_state_filters == ["Odd"]
        assert TRANSACTIONS_TOPIC not in talk.broker.broker.services.cluster.image.topics

    run(tmp_path, scenario)


def test_without_producer_ids_clients_wait_and_retry(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        await talk.begin()

        async def none() -> int:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

        put(talk.broker.broker.services.coordination, "new_producer_id", none)
        assert await talk.initialize() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(tmp_path, scenario)


# --- what brokers ask ---


def test_brokers_ask_about_many_transactions_at_once(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        await talk.begin()
        producers: dict[str, tuple[int, int]] = {}
        for transactional_id in ("a", "b", "c"):
            await talk.initialize(transactional_id=transactional_id)
            producers[transactional_id] = talk.producer
        asked = [
            AddPartitionsToTxnTransaction("a", *producers["a"], False, [AddPartitionsToTxnTopic("t", [0])]),
            AddPartitionsToTxnTransaction("b", *producers["b"], True, [AddPartitionsToTxnTopic("t", [1])]),
            AddPartitionsToTxnTransaction("c", *producers["c"], False, [AddPartitionsToTxnTopic("t", [9])]),
            AddPartitionsToTxnTransaction("d", 5, 0, False, [AddPartitionsToTxnTopic("t", [0, 1])]),
        ]
        response = await talk.broker.ask(AddPartitionsToTxnRequest(asked), 5)
        codes = {
            result.transactional_id: [
                ErrorCode(each.partition_error_code) for each in result.topic_results[0].results_by_partition
            ]
            for result in response.results_by_transaction
        }
        assert codes == {
            "a": [NONE],
            "b": [ErrorCode.TRANSACTION_ABORTABLE],
            "c": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
            "d": [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2,
        }
        states = {each.transactional_id: each.transaction_state for each in await talk.describe("a", "b")}
        assert states == {"a": "Ongoing", "b": "Empty"}

    run(tmp_path, scenario)


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_may_ask_about_nothing(tmp_path: Path, version: int) -> None:
    async def scenario(talk: Talk) -> None:
        response = await talk.broker.ask(AddPartitionsToTxnRequest(), version)
        assert (response.error_code, response.results_by_transaction) == (0, [])

    run(tmp_path, scenario)


def test_offsets_join_by_the_partition_of_their_group(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        await talk.begin()
        await talk.initialize(version=4)
        response = await talk.broker.ask(AddOffsetsToTxnRequest("tx", *talk.producer, "g"), 4)
        assert response.error_code == 0
        (found,) = await talk.describe()
        assert [(topic.topic, topic.partitions) for topic in found.topics] == [
            (OFFSETS_TOPIC, [partition_of("g", 2)])
        ]
        # The topic does not even exist: its part of the transaction is done.
        assert await talk.end(commit=True, version=4) is NONE
        await talk.until("CompleteCommit")

    run(tmp_path, scenario)


# --- descriptions ---


def test_finding_coordinators_creates_their_topic(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        found = await talk.find("a", "b")
        assert [(each.key, each.error_code, each.node_id) for each in found] == [("a", 0, 1), ("b", 0, 1)]
        image = talk.broker.broker.services.cluster.image
        topic = image.topics[TRANSACTIONS_TOPIC]
        assert len(topic.partitions) == 3
        only = await talk.broker.ask(FindCoordinatorRequest("tx", 1), 3)
        assert (only.error_code, only.node_id) == (0, 1)

    run(tmp_path, scenario)


def test_describing_and_listing(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        await talk.begin()
        for transactional_id in ("app-2", "app-1", "other"):
            await talk.initialize(transactional_id=transactional_id)
        await talk.initialize(timeout_ms=7_000)
        await talk.add(1, 0)
        found, unknown = await talk.describe("tx", "nobody")
        assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", 7_000)
        assert (found.producer_id, found.producer_epoch) == talk.producer
        assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", [0, 1])]
        assert found.transaction_start_time_ms > 0

        async def ids(**filters: Any) -> list[str]:
            listed = await talk.list(**filters)
            assert listed.error_code == 0
            return sorted(each.transactional_id for each in listed.transaction_states)

        assert await ids() == ["app-1", "app-2", "other", "tx"]
        assert await ids(state_filters=["Ongoing"]) == ["tx"]
        assert await ids(state_filters=["Empty", "Odd"]) == ["app-1", "app-2", "other"]
        assert await ids(state_filters=["Odd"]) == []
        assert await ids(producer_id_filters=[talk.producer[0]]) == ["tx"]
        assert await ids(state_filters=["Ongoing"], duration_filter=1 << 40) == []
        assert await ids(transactional_id_pattern="app-.*") == ["app-1", "app-2"]
        assert await ids(transactional_id_pattern="app") == []
        assert await ids(transactional_id_pattern="") == ["app-1", "app-2", "other", "tx"]
        wrong = await talk.list(transactional_id_pattern="(")
        assert wrong.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        (state,) = (await talk.list(state_filters=["Ongoing", "Odd"])).transaction_states
        assert (state.producer_id, state.transaction_state) == (talk.producer[0], "Ongoing")
        assert (await talk.list(version=0, state_filters=["Odd"])).unknown_state_filters == ["Odd"]

    run(tmp_path, scenario)


# --- what outlives a broker ---


def test_a_decision_outlives_the_broker(tmp_path: Path) -> None:
    """It stops before the markers are written; the next one writes them."""

    class Unreachable:
        async def ask(self, *_: Any) -> Any:
            raise OSError("planted")

    async def first(talk: Talk) -> None:
        await talk.begin()
        await talk.initialize()
        await talk.write(0, b"a")
        put(talk.broker.broker.services.coordination, "peers", Unreachable())
        assert await talk.end(commit=True) is NONE
        assert (await talk.describe())[0].transaction_state == "PrepareCommit"
        assert await talk.committed_values() == []

    async def second(talk: Talk) -> None:
        await talk.until("CompleteCommit")
        assert await talk.committed_values() == [b"a"]

    run(tmp_path, first)
    run(tmp_path, second)


def test_an_open_transaction_outlives_the_broker(tmp_path: Path) -> None:
    producers: list[tuple[int, int]] = []

    async def first(talk: Talk) -> None:
        await talk.begin()
        await talk.initialize()
        producers.append(talk.producer)
        await talk.write(0, b"a")

    async def second(talk: Talk) -> None:
        talk.producer = producers[0]
        await talk.until("Ongoing")
        assert await talk.write(1, b"b") is NONE
        assert await talk.end(commit=True) is NONE
        await talk.until("CompleteCommit")
        assert await talk.committed_values() == [b"a", b"b"]

    run(tmp_path, first)
    run(tmp_path, second)


def test_a_topic_that_is_deleted_does_not_keep_a_transaction_open(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        await talk.begin()
        await talk.broker.create_topic("gone")
        await talk.initialize(version=4)
        await talk.add(0)
        await talk.add(0, topic="gone")
        await talk.broker.ask(DeleteTopicsRequest([DeleteTopicState("gone")]), 6)
        assert await talk.end(commit=True, version=4) is NONE
        await talk.until("CompleteCommit")

    run(tmp_path, scenario)


def test_what_happens_to_a_transactional_id_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(talk: Talk) -> None:
        await talk.begin()
        await talk.initialize(timeout_ms=1)
        await talk.write(0, b"open")
        await talk.until("CompleteAbort")

    with caplog.at_level(logging.INFO):
        run(tmp_path, scenario)
    assert 'transactional id "tx": aborting its transaction: it was open for 1 ms' in caplog.messages
