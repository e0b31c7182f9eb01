"""A group's offsets in transactions, on a whole broker and frame by frame: they are committed if and only if the
transaction is."""

import asyncio
from pathlib import Path

import pytest

from odradek.coordinators.routing import partition_of
from odradek.errors import ErrorCode
from odradek.model import OFFSETS_TOPIC
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.test_transaction_requests import NONE, Talk, run
from tests.broker.test_transactional_commits import UNSTABLE, commit_request, results, stable_offset

GROUP = "g"


async def begin(talk: Talk, level: int = 2) -> None:
    await talk.begin(level)
    await talk.broker.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 4)


async def add_group(talk: Talk) -> ErrorCode:
    response = await talk.broker.ask(AddOffsetsToTxnRequest("tx", *talk.producer, GROUP), 4)
    return ErrorCode(response.error_code)


async def commit(talk: Talk, offset: int, version: int, producer: tuple[int, int] | None = None) -> ErrorCode:
    request = commit_request(("t", 0, offset))
    request.transactional_id = "tx"
    request.producer_id, request.producer_epoch = producer or talk.producer
    return results(await talk.broker.ask(request, version))["t", 0]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_older_protocol(tmp_path: Path, level: int) -> None:
    async def scenario(talk: Talk) -> None:
        await begin(talk, level)
        await talk.initialize(version=4)
        for number, commits in enumerate([True, False, True]):
            assert await add_group(talk) is NONE
            assert await commit(talk, number, version=4) is NONE
            assert await stable_offset(talk.broker) is UNSTABLE
            assert await talk.end(commit=commits, version=4) is NONE
            await talk.until("CompleteCommit" if commits else "CompleteAbort")
            assert await stable_offset(talk.broker) == (number if commits else 0)

    run(tmp_path, scenario)


def test_version_2_adds_the_group_by_itself(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        await begin(talk)
        await talk.initialize()
        for number, commits in enumerate([True, False, True]):
            assert await commit(talk, number, version=5) is NONE
            (found,) = await talk.describe()
            partitions = [(topic.topic, topic.partitions) for topic in found.topics]
            assert partitions == [(OFFSETS_TOPIC, [partition_of(GROUP, 2)])]
            assert await stable_offset(talk.broker) is UNSTABLE
            assert await talk.end(commit=commits) is NONE
            await talk.until("CompleteCommit" if commits else "CompleteAbort")
            assert await stable_offset(talk.broker) == (number if commits else 0)

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("version", "code"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_a_group_that_was_not_added_is_refused(tmp_path: Path, version: int, code: ErrorCode) -> None:
    async def scenario(talk: Talk) -> None:
        await begin(talk)
        await talk.initialize(version=4)
        assert await commit(talk, 5, version) is code
        assert await stable_offset(talk.broker) == -1

    run(tmp_path, scenario)


def test_the_first_protocol_in_a_cluster_of_that_time_refuses_too(tmp_path: Path) -> None:
    """Version 5 adds a group only where the cluster has agreed on it."""

    async def scenario(talk: Talk) -> None:
        await begin(talk, level=1)
        await talk.initialize(version=4)
        assert await commit(talk, 5, version=5) is ErrorCode.TRANSACTION_ABORTABLE
        assert await add_group(talk) is NONE
        assert await commit(talk, 5, version=5) is NONE

    run(tmp_path, scenario)


def test_a_late_commit_of_the_last_transaction_does_not_join_the_next(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        await begin(talk)
        await talk.initialize()
        first = talk.producer
        assert await commit(talk, 1, version=5) is NONE
        assert await talk.end(commit=True) is NONE
        await talk.until("CompleteCommit")
        late = await commit(talk, 100, version=5, producer=first)
        assert late is ErrorCode.INVALID_PRODUCER_EPOCH, "no transaction is open"
        assert await commit(talk, 2, version=5) is NONE
        late = await commit(talk, 100, version=5, producer=first)
        assert late is ErrorCode.INVALID_PRODUCER_EPOCH, "the next one is open"
        assert await talk.end(commit=True) is NONE
        await talk.until("CompleteCommit")
        assert await stable_offset(talk.broker) == 2

    run(tmp_path, scenario)


def test_a_new_producer_aborts_what_the_one_before_it_left_pending(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        await begin(talk)
        await talk.initialize()
        first = talk.producer
        assert await commit(talk, 1, version=5) is NONE
        while await talk.initialize() is ErrorCode.CONCURRENT_TRANSACTIONS:
            await asyncio.sleep(0)
        assert talk.producer[1] > first[1]
        assert await stable_offset(talk.broker) == -1
        assert await commit(talk, 1, version=5, producer=first) is ErrorCode.INVALID_PRODUCER_EPOCH

    run(tmp_path, scenario)


def test_pending_offsets_of_a_silent_producer_are_dropped(tmp_path: Path) -> None:
    async def scenario(talk: Talk) -> None:
        await begin(talk)
        await talk.initialize(timeout_ms=200)
        assert await commit(talk, 1, version=5) is NONE
        await talk.until("CompleteAbort")
        assert await stable_offset(talk.broker) == -1

    run(tmp_path, scenario, transaction_abort_timed_out_transaction_cleanup_interval_ms="20")
