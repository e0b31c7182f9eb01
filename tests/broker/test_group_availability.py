"""Groups whose topic, logs or state are not there at first: clients are told to come back, and then find them."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.coordinators import journal, runner
from odradek.coordinators.routing import partition_of
from odradek.errors import ErrorCode
from odradek.model import OFFSETS_TOPIC
from odradek.records.batch import Buffer
from odradek.services.coordination import shards
from odradek.services.partitions import local_partitions
from odradek.storage.disk.files import DiskFile
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.broker.in_process import InProcess
from tests.broker.test_disk_faults import FaultyFile, FaultyFiles, run_on

NAMES = [f"group-{number}" for number in range(200)]  # some for each of the partitions
SETTINGS = {"offsets.topic.num.partitions": "10"}


class PartlyFullFile(FaultyFile):
    __slots__ = ()

    def write_at(self, position: int, data: Buffer) -> None:
        assert isinstance(self._files, PartlyFullFiles)
        if self._files.full_for and self._files.full_for in self.path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        super().write_at(position, data)


class PartlyFullFiles(FaultyFiles):
    """Full for those whose path contains this."""

    full_for = ""

    def heal(self) -> None:
        super().heal()
        self.full_for = ""

    def file(self, path: str) -> DiskFile:
        return PartlyFullFile(self, path)

    def create(self, path: str) -> DiskFile:
        super().create(path).close()
        return PartlyFullFile(self, path)


def run(data_dir: Path, scenario: Callable[[InProcess, PartlyFullFiles], Awaitable[None]]) -> None:
    run_on(PartlyFullFiles(), data_dir, scenario, SETTINGS)


async def find(broker: InProcess, group: str) -> int:
    response = await broker.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
    (found,) = response.coordinators
    assert (found.node_id == -1) == (found.error_code != 0)
    assert bool(found.error_message) == (found.error_code != 0)
    code: int = found.error_code
    return code


async def commit(broker: InProcess, group: str, topic: str, offset: int) -> int:
    partition = OffsetCommitRequestPartition(0, offset, committed_metadata="")
    request = OffsetCommitRequest(
        group, -1, "", topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    )
    code: int = (await broker.ask(request, 5)).topics[0].partitions[0].error_code
    return code


async def committed(broker: InProcess, group: str, topic: str) -> tuple[int, int]:
    """The error code, and the offset."""
    request = OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(topic, [0])])
    response = await broker.ask(request, 5)
    return response.error_code, response.topics[0].partitions[0].committed_offset if response.topics else -1


async def delete(broker: InProcess, topic: str) -> None:
    response = await broker.ask(DeleteTopicsRequest([DeleteTopicState(topic)], timeout_ms=5000), 6)
    assert response.responses[0].error_code == 0


async def some_turns() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


# --- creating the topic ---


def test_a_full_disk_at_the_first_question_is_not_remembered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(broker: InProcess, files: PartlyFullFiles) -> None:
        files.is_full = True
        for _ in range(3):
            assert await find(broker, "g") == ErrorCode.COORDINATOR_NOT_AVAILABLE
        older = await broker.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
        assert older.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        files.is_full = False
        assert await find(broker, "g") == 0
        await broker.create_topic("t")
        assert await commit(broker, "g", "t", 7) == 0
        assert await committed(broker, "g", "t") == (0, 7)

    run(tmp_path, scenario)
    assert caplog.text.count("groups are not available") == 1, (
        "the reason is said, and not ten times a second"
    )


@pytest.mark.plants_traceback
def test_whatever_keeps_the_topic_from_being_created_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Exception] = [OSError(errno.EMFILE, "too many open files"), ValueError("planted")]
    create = shards.create_internal_topic

    async def create_or_fail(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        await create(*arguments)

    monkeypatch.setattr(shards, "create_internal_topic", create_or_fail)

    async def scenario(broker: InProcess, files: PartlyFullFiles) -> None:
        both = await asyncio.gather(find(broker, "g"), find(broker, "h"))
        assert both == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
        assert len(failures) == 1, "those who ask at one time wait for one attempt"
        assert await find(broker, "g") == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await find(broker, "g") == 0

    run(tmp_path, scenario)


# --- creating its logs ---


@pytest.mark.parametrize("retried", ["by the timer", "on request"])
def test_shards_whose_logs_could_not_be_created_come_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retried: str
) -> None:
    if retried == "on request":
        monkeypatch.setattr(local_partitions, "REQUEST_RETRY_SECONDS", 0)

    async def scenario(broker: InProcess, files: PartlyFullFiles) -> None:
        await broker.create_topic("t")
        assert (await broker.produce("t", [(None, b"x")])).error_code == 0
        files.room_for_directories = 3
        assert {await find(broker, name) for name in NAMES} == {0}
        await some_turns()
        codes = {name: await commit(broker, name, "t", 1) for name in NAMES}
        missing = [name for name in NAMES if codes[name] == ErrorCode.NOT_COORDINATOR]
        assert len({partition_of(name, 10) for name in missing}) == 7
        assert all(codes[name] == 0 for name in NAMES if name not in missing)
        assert await committed(broker, missing[0], "t") == (0, -1)
        files.room_for_directories = 100
        if retried == "by the timer":
            broker.broker._maintenance.checkpoint()
            await some_turns()
        for name in missing:
            assert await commit(broker, name, "t", 2) == 0
            assert await committed(broker, name, "t") == (0, 2)

    run(tmp_path, scenario)


# --- loading ---


@pytest.mark.plants_traceback
def test_a_shard_that_cannot_be_loaded_is_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def before(broker: InProcess, files: PartlyFullFiles) -> None:
        await broker.create_topic("t")
        assert await find(broker, "g") == 0
        for offset in range(20):
            assert await commit(broker, "g", "t", offset) == 0

    run(tmp_path, before)
    failures: list[Exception] = [OSError(errno.EMFILE, "too many open files"), ValueError("planted")]
    read_batches = journal.read_batches

    def read_or_fail(log: Any) -> Any:
        pieces = read_batches(log)
        yield next(iter(pieces))
        if failures:
            raise failures.pop()
        yield from pieces

    monkeypatch.setattr(journal, "read_batches", read_or_fail)
    monkeypatch.setattr(runner, "LOAD_RETRY_SECONDS", 0.001)

    async def after(broker: InProcess, files: PartlyFullFiles) -> None:
        code, offset = await committed(broker, "g", "t")
        assert code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        while code:
            await asyncio.sleep(0.001)
            code, offset = await committed(broker, "g", "t")
            assert code in (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert offset == 19
        assert not failures
        assert await commit(broker, "g", "t", 20) == 0

    run(tmp_path, after)
    said = [record for record in caplog.records if "cannot be loaded" in record.message]
    assert len(said) == 2
    assert "trying again in 0.002 s" in said[1].message


def test_an_append_that_raises_does_not_end_the_shard(tmp_path: Path) -> None:
    """Neither does one that is refused: each is answered, and the next is decided anew."""

    async def scenario(broker: InProcess, files: PartlyFullFiles) -> None:
        await broker.create_topic("t")
        assert await find(broker, "g") == 0
        assert await commit(broker, "g", "t", 1) == 0
        leader = broker.broker.replicas.leader(OFFSETS_TOPIC, partition_of("g", 10))
        log = leader.log

        class Unopened:
            def __getattr__(self, name: str) -> Any:
                return getattr(log, name)

            def append_as_leader(self, *_: Any, **__: Any) -> None:
                raise OSError(errno.EMFILE, "too many open files")

        leader.log = Unopened()  # type: ignore[assignment]
        for _ in range(2):
            assert await commit(broker, "g", "t", 2) == ErrorCode.NOT_COORDINATOR
        leader.log = log
        files.full_for = OFFSETS_TOPIC
        assert await commit(broker, "g", "t", 2) == ErrorCode.NOT_COORDINATOR
        files.full_for = ""
        assert await commit(broker, "g", "t", 3) == 0
        assert await committed(broker, "g", "t") == (0, 3)

    run(tmp_path, scenario)


# --- offsets of topics that are deleted ---


def test_offsets_of_a_deleted_topic_go_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those that were committed meanwhile to the next topic of the name stay."""
    monkeypatch.setattr("odradek.coordinators.offsets.FORGET_RETRY_MS", 1)

    async def scenario(broker: InProcess, files: PartlyFullFiles) -> None:
        await broker.create_topic("t")
        assert await find(broker, "g") == 0
        assert await commit(broker, "g", "t", 5) == 0
        assert await commit(broker, "h", "t", 6) == 0
        files.full_for = OFFSETS_TOPIC
        await delete(broker, "t")
        files.full_for = ""
        await broker.create_topic("t")
        assert await commit(broker, "h", "t", 1) == 0
        while (await committed(broker, "g", "t"))[1] != -1:
            await asyncio.sleep(0.001)
        assert await committed(broker, "h", "t") == (0, 1)

    run(tmp_path, scenario)


def test_offsets_of_a_topic_deleted_before_a_crash_go_when_they_are_loaded(tmp_path: Path) -> None:
    async def before(broker: InProcess, files: PartlyFullFiles) -> None:
        await broker.create_topic("t")
        await broker.create_topic("other")
        assert await find(broker, "g") == 0
        assert await commit(broker, "g", "t", 5) == 0
        assert await commit(broker, "g", "other", 6) == 0
        files.full_for = OFFSETS_TOPIC  # as if it had crashed before the offsets went
        await delete(broker, "t")

    async def after(broker: InProcess, files: PartlyFullFiles) -> None:
        await some_turns()
        await broker.create_topic("t")
        assert await committed(broker, "g", "t") == (0, -1)
        assert await committed(broker, "g", "other") == (0, 6)

    run(tmp_path, before)
    run(tmp_path, after)


def test_a_topic_deleted_while_its_offsets_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def before(broker: InProcess, files: PartlyFullFiles) -> None:
        await broker.create_topic("t")
        assert await find(broker, "g") == 0
        assert await commit(broker, "g", "t", 5) == 0

    run(tmp_path, before)

    async def after(broker: InProcess, files: PartlyFullFiles) -> None:
        assert (await committed(broker, "g", "t"))[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await delete(broker, "t")
        await broker.create_topic("t")
        await some_turns()
        assert await committed(broker, "g", "t") == (0, -1)

    run(tmp_path, after)


def test_the_topic_deleted_and_created_anew_has_new_shards(tmp_path: Path) -> None:
    async def scenario(broker: InProcess, files: PartlyFullFiles) -> None:
        await broker.create_topic("t")
        for _ in range(2):
            assert await find(broker, "g") == 0
            assert await committed(broker, "g", "t") == (0, -1)
            assert await commit(broker, "g", "t", 5) == 0
            assert await committed(broker, "g", "t") == (0, 5)
            await delete(broker, OFFSETS_TOPIC)

    run(tmp_path, scenario)
