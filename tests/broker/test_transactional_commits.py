"""TxnOffsetCommit in a broker: what is asked of the transaction's coordinator first, and what a marker makes of it.

The transaction's coordinator is replaced by one that says what the test wants, when it wants.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.api import txn_offset_commit
from odradek.apis.items import cut
from odradek.errors import ErrorCode
from odradek.model import OFFSETS_TOPIC
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.in_process import InProcess

PRODUCER = 77
GROUP = "g"
TIMEOUT_S = 60
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


class Coordinator:
    """Verifies offsets as it is told to."""

    def __init__(self) -> None:
        self.code = ErrorCode.NONE
        self.asked: list[tuple[Any, ...]] = []
        self.may_respond = asyncio.Event()
        self.may_respond.set()

    async def verify_offsets(self, *question: Any) -> ErrorCode:
        self.asked.append(question)
        await self.may_respond.wait()
        return self.code


def run(directory: Path, scenario: Callable[[InProcess, Coordinator], Awaitable[None]]) -> None:
    async def main() -> None:
        settings = {"offsets.topic.num.partitions": "1"}
        async with InProcess(str(directory), settings=settings) as broker:
            coordinator = Coordinator()
            broker.broker._coordinators._verifier = coordinator  # type: ignore[assignment]
            await broker.create_topic("t", partitions=2)
            await broker.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 4)
            await scenario(broker, coordinator)

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))


def commit_request(
    *offsets: tuple[str, int, int], epoch: int = 0, group: str = GROUP, **fields: Any
) -> TxnOffsetCommitRequest:
    topics = [
        TxnOffsetCommitRequestTopic(topic, [TxnOffsetCommitRequestPartition(partition, offset)])
        for topic, partition, offset in offsets
    ]
    return TxnOffsetCommitRequest("id", group, PRODUCER, epoch, topics=topics, **fields)


def results(response: Any) -> dict[tuple[str, int], ErrorCode]:
    return {
        (topic.name, each.partition_index): ErrorCode(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }


async def commit(broker: InProcess, offset: int, version: int = 5, **fields: Any) -> ErrorCode:
    response = await broker.ask(commit_request(("t", 0, offset), **fields), version)
    return results(response)["t", 0]


async def end(broker: InProcess, *, commits: bool, epoch: int = 0, partition: int = 0) -> ErrorCode:
    topics = [WritableTxnMarkerTopic(OFFSETS_TOPIC, [partition])]
    marker = WritableTxnMarker(PRODUCER, epoch, commits, topics, coordinator_epoch=1)
    response = await broker.ask(WriteTxnMarkersRequest([marker]), 1)
    return ErrorCode(response.markers[0].topics[0].partitions[0].error_code)


async def stable_offset(broker: InProcess, partition: int = 0) -> int | ErrorCode:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[partition])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=topics)], require_stable=True)
    while (group := (await broker.ask(request, 9)).groups[0]).error_code:
        assert group.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # after a start
        await asyncio.sleep(0)
    found = group.topics[0].partitions[0]
    return ErrorCode(found.error_code) if found.error_code else int(found.committed_offset)


@pytest.mark.parametrize("version", range(6))
def test_offsets_are_seen_once_the_marker_is_there(tmp_path: Path, version: int) -> None:
    async def scenario(broker: InProcess, coordinator: Coordinator) -> None:
        assert await commit(broker, 5, version) is ErrorCode.NONE
        assert coordinator.asked == [(version, "id", PRODUCER, 0, 0)]
        assert await stable_offset(broker) is UNSTABLE
        assert await end(broker, commits=True) is ErrorCode.NONE
        assert await stable_offset(broker) == 5
        assert await commit(broker, 6, version) is ErrorCode.NONE
        assert await end(broker, commits=False) is ErrorCode.NONE
        assert await stable_offset(broker) == 5

    run(tmp_path, scenario)


def test_offsets_and_transactions_survive_a_restart(tmp_path: Path) -> None:
    async def before(broker: InProcess, coordinator: Coordinator) -> None:
        assert await commit(broker, 5) is ErrorCode.NONE
        await end(broker, commits=True)
        assert await commit(broker, 6) is ErrorCode.NONE

    async def main() -> None:
        async with InProcess(str(tmp_path), settings={"offsets.topic.num.partitions": "1"}) as broker:
            assert await stable_offset(broker) is UNSTABLE
            assert await end(broker, commits=True) is ErrorCode.NONE
            assert await stable_offset(broker) == 6

    run(tmp_path, before)
    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))


def test_what_the_coordinator_does_not_verify_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: InProcess, coordinator: Coordinator) -> None:
        coordinator.code = ErrorCode.TRANSACTION_ABORTABLE
        request = commit_request(("t", 0, 5), ("t", 9, 5), ("no such topic", 0, 5))
        assert results(await broker.ask(request, 5)) == {
            ("t", 0): ErrorCode.TRANSACTION_ABORTABLE,
            ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("no such topic", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert await stable_offset(broker) == -1

    run(tmp_path, scenario)


def test_what_needs_no_coordinator_is_not_asked_about(tmp_path: Path) -> None:
    async def scenario(broker: InProcess, coordinator: Coordinator) -> None:
        nowhere = await broker.ask(commit_request(("no such topic", 0, 5)), 5)
        assert results(nowhere) == {("no such topic", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        nobody = await broker.ask(commit_request(("t", 0, 5), group=""), 5)
        assert results(nobody) == {("t", 0): ErrorCode.INVALID_GROUP_ID}
        assert coordinator.asked == []

    run(tmp_path, scenario)


def test_the_group_has_its_say_too(tmp_path: Path) -> None:
    async def scenario(broker: InProcess, coordinator: Coordinator) -> None:
        member = {"generation_id": 5, "member_id": "nobody"}
        assert await commit(broker, 5, **member) is ErrorCode.ILLEGAL_GENERATION

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)],
)
def test_older_producers_are_not_told_that_a_coordinator_is_loading(
    tmp_path: Path, version: int, code: ErrorCode
) -> None:
    async def scenario(broker: InProcess, coordinator: Coordinator) -> None:
        coordinator.code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await commit(broker, 5, version) is code

    run(tmp_path, scenario)


def test_many_partitions_are_committed_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first part begins the transaction in the log, and the rest joins it."""
    monkeypatch.setattr(txn_offset_commit, "cut", partial(cut, most=1))

    async def scenario(broker: InProcess, coordinator: Coordinator) -> None:
        request = commit_request(("t", 0, 5), ("t", 1, 6), ("t", 7, 7))
        assert results(await broker.ask(request, 5)) == {
            ("t", 0): ErrorCode.NONE,
            ("t", 1): ErrorCode.NONE,
            ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert len(coordinator.asked) == 1
        assert len(broker.records(OFFSETS_TOPIC)) == 2
        await end(broker, commits=True)
        assert [await stable_offset(broker, partition) for partition in (0, 1)] == [5, 6]

    run(tmp_path, scenario)


def test_a_marker_for_a_partition_that_is_not_here_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: InProcess, coordinator: Coordinator) -> None:
        assert await end(broker, commits=True, partition=3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, scenario)


def test_a_late_marker_and_a_fenced_producer_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: InProcess, coordinator: Coordinator) -> None:
        assert await commit(broker, 5, epoch=3) is ErrorCode.NONE
        assert await commit(broker, 6, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await end(broker, commits=True, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await stable_offset(broker) is UNSTABLE
        assert await end(broker, commits=True, epoch=4) is ErrorCode.NONE
        assert await stable_offset(broker) == 5

    run(tmp_path, scenario)


def test_a_commit_waits_for_the_coordinator(tmp_path: Path) -> None:
    async def scenario(broker: InProcess, coordinator: Coordinator) -> None:
        coordinator.may_respond.clear()
        waiting = asyncio.create_task(commit(broker, 5))
        while not coordinator.asked:
            await asyncio.sleep(0)
        assert await stable_offset(broker) == -1
        coordinator.may_respond.set()
        assert await waiting is ErrorCode.NONE
        assert await stable_offset(broker) is UNSTABLE

    run(tmp_path, scenario)
