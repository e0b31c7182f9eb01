"""WriteTxnMarkers, and what `read_committed` consumers see of the transactions that it ends."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.model import OFFSETS_TOPIC
from odradek.storage.producers.markers import TransactionEnd
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.in_process import put
from tests.broker.transactional import READ_COMMITTED, Transactional

NONE = ErrorCode.NONE
READ_UNCOMMITTED = 0


async def end_offset(broker: Transactional, isolation_level: int, timestamp: int = -1) -> int:
    asked = ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=timestamp)])
    response = await broker.ask(ListOffsetsRequest(-1, isolation_level, [asked]), 7)
    offset: int = response.topics[0].partitions[0].offset
    return offset


async def producer_states(broker: Transactional) -> Any:
    response = await broker.ask(DescribeProducersRequest([TopicRequest("t", [0])]), 0)
    return response.topics[0].partitions[0].active_producers


# --- what is seen ---


def test_a_transaction_is_seen_once_it_is_committed(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            assert await broker.write(0, b"a", b"b") is NONE
            assert await broker.committed_values() == []
            found = await broker.fetch(isolation_level=READ_UNCOMMITTED)
            assert (found.high_watermark, found.last_stable_offset) == (2, 0)
            assert found.records and not found.aborted_transactions
            assert await end_offset(broker, READ_COMMITTED) == 0
            assert await end_offset(broker, READ_UNCOMMITTED) == 2
            assert await broker.end() == [NONE]
            assert await broker.committed_values() == [b"a", b"b"]
            assert await end_offset(broker, READ_COMMITTED) == 3

    asyncio.run(test())


def test_an_aborted_transaction_is_never_seen(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            assert await broker.write(0, b"a") is NONE
            assert await broker.write(0, b"plain", producer=9, transactional=False) is NONE
            assert await broker.end(is_commit=False) == [NONE]
            assert await broker.committed_values() == [b"plain"]
            found = await broker.fetch(1)  # it began before, and is told all the same
            assert [(one.producer_id, one.first_offset) for one in found.aborted_transactions] == [(7, 0)]

    asyncio.run(test())


def test_an_open_transaction_hides_all_that_comes_after_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            assert await broker.write(0, b"plain", producer=9, transactional=False) is NONE
            assert await broker.write(0, b"open") is NONE
            assert await broker.write(0, b"quick", producer=8, transactional_id="other") is NONE
            assert await broker.end(producer=8) == [NONE]
            assert await broker.committed_values() == [b"plain"]
            assert await end_offset(broker, READ_COMMITTED, timestamp=1_000) == 0
            assert await broker.end() == [NONE]
            assert await broker.committed_values() == [b"plain", b"open", b"quick"]

    asyncio.run(test())


def test_aborted_transactions_are_told_by_first_offset(tmp_path: Path) -> None:
    """Which is how clients look for them; the index has them in the order in which they ended."""

    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            for producer in (1, 2, 3):
                assert await broker.write(0, producer=producer, transactional_id=f"tx-{producer}") is NONE
            for producer in (3, 1, 2):
                assert await broker.end(producer=producer, is_commit=False) == [NONE]
            found = await broker.fetch()
            told = [(one.producer_id, one.first_offset) for one in found.aborted_transactions]
            assert told == [(1, 0), (2, 1), (3, 2)]

    asyncio.run(test())


def test_a_fetch_that_waits_is_woken_by_the_marker(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            assert await broker.write(0, b"a") is NONE
            waiting = asyncio.create_task(broker.fetch(max_wait_ms=60_000))
            assert await broker.write(1, b"b") is NONE
            assert not waiting.done()
            assert await broker.end() == [NONE]
            found = await waiting
            assert (found.high_watermark, found.last_stable_offset) == (3, 3)

    asyncio.run(test())


def test_the_state_of_a_producer_follows_its_transaction(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            assert await broker.write(0, b"a", b"b") is NONE
            (state,) = await producer_states(broker)
            assert (state.producer_id, state.producer_epoch, state.last_sequence) == (7, 0, 1)
            assert (state.current_txn_start_offset, state.coordinator_epoch) == (0, -1)
            assert await broker.end(coordinator_epoch=4) == [NONE]
            (state,) = await producer_states(broker)
            assert (state.producer_epoch, state.last_sequence) == (1, -1)
            assert (state.current_txn_start_offset, state.coordinator_epoch) == (-1, 4)

    asyncio.run(test())


def test_records_of_an_open_transaction_may_be_deleted(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            assert await broker.write(0, b"a", b"b") is NONE
            assert await broker.write(2, b"c") is NONE
            asked = DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 2)])
            response = await broker.ask(DeleteRecordsRequest([asked], 10_000), 2)
            assert response.topics[0].partitions[0].low_watermark == 2
            found = await broker.fetch(2)
            assert (found.last_stable_offset, found.records) == (2, b"")
            assert await broker.end() == [NONE]
            found = await broker.fetch(2)
            assert found.last_stable_offset == 4 and found.records

    asyncio.run(test())


# --- markers ---


def test_a_marker_of_the_older_protocol_has_the_epoch_of_its_data(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            assert await broker.write(0, b"a", version=11) is NONE
            assert await broker.end(epoch=0, transaction_version=1) == [NONE]
            assert await broker.write(1, b"b", version=11) is NONE
            assert await broker.end(epoch=0, transaction_version=1, is_commit=False) == [NONE]
            assert await broker.committed_values() == [b"a"]

    asyncio.run(test())


def test_a_late_marker_does_not_end_the_next_transaction(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            assert await broker.write(0, b"a") is NONE
            assert await broker.end(epoch=1) == [NONE]
            assert await broker.write(0, b"b", epoch=1) is NONE
            assert await broker.end(epoch=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
            assert await broker.committed_values() == [b"a"]
            assert await broker.end(epoch=2) == [NONE]
            assert await broker.committed_values() == [b"a", b"b"]

    asyncio.run(test())


def test_a_marker_that_comes_twice_is_written_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            assert await broker.write(0, b"a") is NONE
            assert await broker.end() == [NONE]
            end = broker.broker.replicas.get("t", 0).log.end_offset
            assert await broker.end() == [NONE]
            assert broker.broker.replicas.get("t", 0).log.end_offset == end

    asyncio.run(test())


def test_a_replaced_coordinator_is_fenced(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            assert await broker.write(0) is NONE
            assert await broker.end(coordinator_epoch=5) == [NONE]
            assert await broker.write(0, epoch=1) is NONE
            fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
            assert await broker.end(epoch=2, coordinator_epoch=4) == [fenced]
            assert await broker.end(epoch=2, coordinator_epoch=5) == [NONE]

    asyncio.run(test())


def test_an_old_epoch_ends_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            assert await broker.write(0, epoch=3) is NONE
            for version in (1, 2):
                refused = await broker.end(epoch=2, transaction_version=version)
                assert refused == [ErrorCode.INVALID_PRODUCER_EPOCH]
            assert await end_offset(broker, READ_COMMITTED) == 0

    asyncio.run(test())


def test_partitions_are_told_one_by_one(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await broker.end(partitions=(0, 5)) == [NONE, unknown]
            assert await broker.end(topic="nowhere", producer=8) == [unknown]

    asyncio.run(test())


def test_many_markers_in_one_request(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            for producer in (1, 2):
                assert (
                    await broker.write(
                        0, b"%d" % producer, producer=producer, transactional_id=f"tx-{producer}"
                    )
                    is NONE
                )
            markers = [
                WritableTxnMarker(producer, 1, producer == 1, [WritableTxnMarkerTopic("t", [0, 1])], 0, 2)
                for producer in (1, 2)
            ]
            response = await broker.ask(WriteTxnMarkersRequest(markers), 2)
            told = [
                (result.producer_id, partition.partition_index, partition.error_code)
                for result in response.markers
                for partition in result.topics[0].partitions
            ]
            assert told == [(1, 0, 0), (1, 1, 0), (2, 0, 0), (2, 1, 0)]
            assert await broker.committed_values() == [b"1"]

    asyncio.run(test())


def test_markers_that_are_written_together_are_told_one_by_one(tmp_path: Path) -> None:
    """Three transactions end in one partition, and one of them is over already."""

    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            for producer in (1, 2, 3):
                written = await broker.write(
                    0, b"%d" % producer, producer=producer, transactional_id=f"tx-{producer}"
                )
                assert written is NONE
            markers = [
                WritableTxnMarker(producer, producer % 2, True, [WritableTxnMarkerTopic("t", [0])], 0, 2)
                for producer in (1, 2, 3)
            ]
            response = await broker.ask(WriteTxnMarkersRequest(markers), 2)
            told = [result.topics[0].partitions[0].error_code for result in response.markers]
            assert told == [NONE, ErrorCode.INVALID_PRODUCER_EPOCH, NONE]
            assert await broker.committed_values() == [b"1"]
            assert await broker.end(producer=2) == [NONE]
            assert await broker.committed_values() == [b"1", b"2", b"3"]

    asyncio.run(test())


def test_a_request_without_markers_has_an_answer(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            response = await broker.ask(WriteTxnMarkersRequest([]), 1)
            assert response.markers == []

    asyncio.run(test())


def test_a_marker_is_answered_once_it_is_committed(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            assert await broker.write(0) is NONE
            leader = broker.broker.replicas.leader("t", 0)
            broker.broker._flusher.appended = lambda replica: None  # type: ignore[method-assign]
            waiting = asyncio.create_task(broker.end())
            while leader.log.end_offset < 2:
                await asyncio.sleep(0)
            assert not waiting.done() and leader.last_stable_offset == 0
            leader.log.sync()
            leader.maybe_advance_high_watermark()
            assert await waiting == [NONE]

    asyncio.run(test())


def test_a_marker_that_is_not_committed_in_time_is_tried_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path, request_timeout_ms="1") as broker:
            broker.broker._flusher.appended = lambda replica: None  # type: ignore[method-assign]
            assert await broker.end() == [ErrorCode.REQUEST_TIMED_OUT]

    asyncio.run(test())


def test_a_partition_with_too_few_replicas_takes_no_marker(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            leader = broker.broker.replicas.leader("t", 0)
            leader.has_enough_replicas = False
            assert await broker.end() == [ErrorCode.NOT_ENOUGH_REPLICAS]
            assert leader.log.end_offset == 0

    asyncio.run(test())


@pytest.mark.parametrize(
    "code, told",
    [
        (NONE, NONE),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_markers_for_committed_offsets_go_to_the_group_coordinator(
    tmp_path: Path, code: ErrorCode, told: ErrorCode
) -> None:
    ends: list[tuple[int, TransactionEnd]] = []

    class PlayedGroups:
        def end_transaction(self, index: int, end: TransactionEnd, done: Callable[[ErrorCode], None]) -> None:
            ends.append((index, end))
            done(code)

    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            await broker.create_topic(OFFSETS_TOPIC, 2)
            put(broker.broker.services.coordination, "get", lambda kind: PlayedGroups())
            assert await broker.end(topic=OFFSETS_TOPIC, partitions=(1,), coordinator_epoch=3) == [told]
            assert ends == [(1, TransactionEnd(7, 1, 3, True, 2))]

    asyncio.run(test())


def test_producers_of_an_illegal_name_are_not_looked_for(tmp_path: Path) -> None:
    async def test() -> None:
        async with Transactional(tmp_path) as broker:
            asked = [TopicRequest(name, [0]) for name in ("a/b", "missing")]
            response = await broker.ask(DescribeProducersRequest(asked), 0)
            assert [topic.partitions[0].error_code for topic in response.topics] == [
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]

    asyncio.run(test())
