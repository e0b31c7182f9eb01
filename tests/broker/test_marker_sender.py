"""Markers on their way to the leaders of their partitions, which the test plays."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.coordinators.transactions.effects import WriteMarkers
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.services.coordination import txn_markers
from odradek.services.coordination.txn_markers import MarkerJob, MarkerSender
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.broker.in_process import InProcess, put

TIMEOUT_S = 60
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class PlayedLeaders:
    """Respond once they may, to each partition with the next of its codes, or NONE."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, WriteTxnMarkersRequest]] = []
        self.codes: dict[TopicPartition, list[ErrorCode]] = {}
        self.failures: list[Exception] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.was_asked = asyncio.Event()

    async def ask(self, broker_id: int, message: Any, version: int, timeout_seconds: float) -> Any:
        assert version == 2
        self.requests.append((broker_id, message))
        self.was_asked.set()
        await self.may_answer.wait()
        if self.failures:
            raise self.failures.pop(0)
        return WriteTxnMarkersResponse(
            [
                WritableTxnMarkerResult(
                    marker.producer_id,
                    [
                        WritableTxnMarkerTopicResult(
                            topic.name,
                            [
                                WritableTxnMarkerPartitionResult(
                                    index, self._code(TopicPartition(topic.name, index))
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in message.markers
            ]
        )

    def _code(self, partition: TopicPartition) -> ErrorCode:
        codes = self.codes.get(partition)
        return codes.pop(0) if codes else ErrorCode.NONE


class Sending:
    def __init__(self, broker: InProcess) -> None:
        self.broker = broker
        self.leaders = PlayedLeaders()
        put(broker.broker.services.coordination, "peers", self.leaders)
        self.sender = MarkerSender(broker.broker.services)
        self.unwanted: set[int] = set()

    def send(
        self, producer_id: int, *partitions: TopicPartition, commit: bool = True
    ) -> "asyncio.Future[None]":
        """Done when the job says so."""
        done = asyncio.get_running_loop().create_future()
        markers = WriteMarkers(f"tx-{producer_id}", producer_id, 3, commit, 2, partitions)
        self.sender.send(
            MarkerJob(
                markers,
                coordinator_epoch=9,
                is_wanted=lambda: producer_id not in self.unwanted,
                done=lambda: done.set_result(None),
            )
        )
        return done


def run(path: Path, scenario: Callable[[Sending], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), InProcess(str(path)) as broker:
            await broker.create_topic("t", 2)
            await scenario(Sending(broker))

    asyncio.run(main())


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txn_markers, "FIRST_PAUSE_SECONDS", 0.001)


def test_a_marker_says_all_there_is_to_say(tmp_path: Path) -> None:
    async def scenario(sending: Sending) -> None:
        await sending.send(7, T1, T0, commit=False)
        ((broker_id, message),) = sending.leaders.requests
        (marker,) = message.markers
        assert broker_id == 1
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 9)
        assert (marker.transaction_result, marker.transaction_version) == (False, 2)
        assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [0, 1])]

    run(tmp_path, scenario)


def test_those_of_one_turn_travel_together(tmp_path: Path) -> None:
    async def scenario(sending: Sending) -> None:
        await asyncio.gather(*(sending.send(producer_id, T0) for producer_id in range(50)))
        ((_, message),) = sending.leaders.requests
        assert [marker.producer_id for marker in message.markers] == list(range(50))

    run(tmp_path, scenario)


def test_only_so_many_requests_are_under_way(tmp_path: Path) -> None:
    async def scenario(sending: Sending) -> None:
        sending.leaders.may_answer.clear()
        jobs = []
        for producer_id in range(txn_markers.MOST_REQUESTS + 5):
            jobs.append(sending.send(producer_id, T0))
            for _ in range(3):
                await asyncio.sleep(0)
        assert len(sending.leaders.requests) == txn_markers.MOST_REQUESTS
        sending.leaders.may_answer.set()
        await asyncio.gather(*jobs)
        assert len(sending.leaders.requests) == txn_markers.MOST_REQUESTS + 1

    run(tmp_path, scenario)


def test_a_request_has_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txn_markers, "MOST_PARTITIONS", 3)

    async def scenario(sending: Sending) -> None:
        await asyncio.gather(*(sending.send(producer_id, T0, T1) for producer_id in range(3)))
        assert [len(message.markers) for _, message in sending.leaders.requests] == [1, 1, 1]

    run(tmp_path, scenario)


def test_what_fails_is_tried_again_and_nothing_else(tmp_path: Path) -> None:
    async def scenario(sending: Sending) -> None:
        sending.leaders.codes[T1] = [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.KAFKA_STORAGE_ERROR,
        ]
        await sending.send(7, T0, T1)
        asked = [
            [index for topic in message.markers[0].topics for index in topic.partition_indexes]
            for _, message in sending.leaders.requests
        ]
        assert asked == [[0, 1], [1], [1], [1], [1]]

    run(tmp_path, scenario)


def test_a_broker_that_does_not_respond_is_asked_again(tmp_path: Path) -> None:
    async def scenario(sending: Sending) -> None:
        sending.leaders.failures = [OSError("gone"), TimeoutError()]
        await sending.send(7, T0)
        assert len(sending.leaders.requests) == 3

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    ],
)
def test_a_partition_that_needs_no_marker_is_done(tmp_path: Path, code: ErrorCode) -> None:
    async def scenario(sending: Sending) -> None:
        sending.leaders.codes[T0] = [code]
        await sending.send(7, T0, T1)
        assert len(sending.leaders.requests) == 1

    run(tmp_path, scenario)


def test_a_newer_coordinator_ends_it(tmp_path: Path) -> None:
    async def scenario(sending: Sending) -> None:
        sending.leaders.codes[T0] = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
        sending.leaders.codes[T1] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        fenced = sending.send(7, T0, T1)
        await sending.leaders.was_asked.wait()
        await sending.send(8, T1)
        assert not fenced.done()
        assert sum(marker.producer_id == 7 for _, m in sending.leaders.requests for marker in m.markers) == 1

    run(tmp_path, scenario)


def test_partitions_of_a_deleted_topic_are_done(tmp_path: Path) -> None:
    async def scenario(sending: Sending) -> None:
        await sending.send(7, TopicPartition("nowhere", 0), TopicPartition("t", 5))
        assert not sending.leaders.requests
        sending.leaders.codes[T0] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        sending.leaders.may_answer.clear()
        job = sending.send(8, T0)
        await sending.leaders.was_asked.wait()
        await sending.broker.ask(DeleteTopicsRequest([DeleteTopicState("t")]), 6)
        sending.leaders.may_answer.set()
        await job
        assert len(sending.leaders.requests) == 1

    run(tmp_path, scenario)


def test_what_is_not_wanted_any_more_is_not_sent(tmp_path: Path) -> None:
    async def scenario(sending: Sending) -> None:
        job = sending.send(7, T0)
        sending.unwanted.add(7)
        await sending.send(8, T0)
        assert not job.done()
        assert [marker.producer_id for _, m in sending.leaders.requests for marker in m.markers] == [8]

    run(tmp_path, scenario)


def test_pauses_grow_and_end() -> None:
    job = MarkerJob(WriteMarkers("tx", 7, 0, True, 2, (T0,)), 0, lambda: True, lambda: None)
    pauses = [job.pause_seconds() for _ in range(2_000)]
    assert pauses[:3] == [0.001, 0.002, 0.004]
    assert pauses[-1] <= txn_markers.LONGEST_PAUSE_SECONDS


def test_a_sender_that_is_closed_stops(tmp_path: Path) -> None:
    async def scenario(sending: Sending) -> None:
        sending.leaders.may_answer.clear()
        job = sending.send(7, T0)
        await sending.leaders.was_asked.wait()
        sending.sender.close()
        sending.leaders.may_answer.set()
        await asyncio.sleep(0)
        assert not job.done()

    run(tmp_path, scenario)
