"""A disk that is full, slow, or does not come back: what clients hear of it, and that it passes."""

import asyncio
import errno
import os
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from odradek.errors import ErrorCode
from odradek.records.batch import Buffer
from odradek.services.partitions import flusher
from odradek.storage.disk.files import DiskFile, DiskFiles
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.in_process import InProcess
from tests.protocol.raw import Raw, batch, fetch_request, produce_request
from tests.support import running_broker

TOPIC = "t"
TIMEOUT_S = 30


class FaultyFile(DiskFile):
    """On a disk that is full, half of what is written gets there before it is noticed."""

    __slots__ = ()

    def fileno(self) -> int:
        assert isinstance(self._files, FaultyFiles)
        if self._descriptor < 0 and self._files.unopened == self.path:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), self.path)
        return super().fileno()

    def write_at(self, position: int, data: Buffer) -> None:
        assert isinstance(self._files, FaultyFiles)
        if self._files.is_full:
            super().write_at(position, memoryview(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        super().write_at(position, data)


class FaultyFiles(DiskFiles):
    def __init__(self) -> None:
        super().__init__()
        self.is_full = False
        self.room_for_directories = 100
        self.unopened = ""  # the path of a file that cannot be opened
        self.may_sync = threading.Event()
        self.may_sync.set()

    def heal(self) -> None:
        self.is_full = False
        self.room_for_directories = 1000
        self.unopened = ""
        self.may_sync.set()

    def file(self, path: str) -> DiskFile:
        return FaultyFile(self, path)

    def create(self, path: str) -> DiskFile:
        super().create(path).close()
        return FaultyFile(self, path)

    def make_directory(self, path: str) -> None:
        self.room_for_directories -= 1
        if self.room_for_directories < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        super().make_directory(path)

    def sync_many(self, files: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            self.may_sync.wait(TIMEOUT_S)
        super().sync_many(files)


FailingFiles = TypeVar("FailingFiles", bound=FaultyFiles)


def run_on(
    files: FailingFiles,
    data_dir: Path,
    scenario: Callable[[InProcess, FailingFiles], Awaitable[None]],
    settings: Mapping[str, str] | None = None,
) -> None:
    """A broker on a disk that fails as the scenario says, and is well again before the broker stops."""
    unhandled: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        async with InProcess(str(data_dir), files, settings) as broker:
            try:
                await scenario(broker, files)
            finally:
                files.heal()

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))
    assert not unhandled


def run(data_dir: Path, scenario: Callable[[InProcess, FaultyFiles], Awaitable[None]]) -> None:
    async def on_a_slow_disk(broker: InProcess, files: FaultyFiles) -> None:
        broker.broker._flusher._average_seconds = 1.0  # it is synced in a thread
        await scenario(broker, files)

    run_on(FaultyFiles(), data_dir, on_a_slow_disk)


def response_of(response: Any) -> Any:
    return response.responses[0].partition_responses[0]


def test_a_sync_that_does_not_end_is_answered_at_the_timeout(tmp_path: Path) -> None:
    async def scenario(broker: InProcess, files: FaultyFiles) -> None:
        await broker.create_topic(TOPIC)
        files.may_sync.clear()
        late = response_of(await broker.ask(produce_request(TOPIC, batch(b"late"), timeout_ms=100), 9))
        assert (late.error_code, late.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        files.may_sync.set()
        later = await broker.produce(TOPIC, [(None, b"later")])
        assert (later.error_code, later.base_offset) == (0, 1)

    run(tmp_path, scenario)


def test_a_produce_that_waits_is_answered_when_its_topic_is_deleted(tmp_path: Path) -> None:
    async def scenario(broker: InProcess, files: FaultyFiles) -> None:
        await broker.create_topic(TOPIC)
        files.may_sync.clear()
        waiting = asyncio.ensure_future(broker.produce(TOPIC, [(None, b"x")]))
        await asyncio.sleep(0)
        await broker.ask(DeleteTopicsRequest([DeleteTopicState(TOPIC)], timeout_ms=5000), 6)
        assert (await waiting).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, scenario)


def test_a_full_disk_refuses_the_append_and_nothing_else(tmp_path: Path) -> None:
    async def scenario(broker: InProcess, files: FaultyFiles) -> None:
        await broker.create_topic(TOPIC)
        await broker.produce(TOPIC, [(None, b"before")])
        files.is_full = True
        for acks in (1, -1):
            refused = await broker.produce(TOPIC, [(None, b"refused" * 100)], acks=acks)
            assert (refused.error_code, refused.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert [record.value for record in broker.records(TOPIC)] == [b"before"]
        files.is_full = False
        again = await broker.produce(TOPIC, [(None, b"after")])
        assert (again.error_code, again.base_offset) == (0, 1)
        assert [record.value for record in broker.records(TOPIC)] == [b"before", b"after"]

    run(tmp_path, scenario)


def test_a_disk_that_fills_up_while_partitions_are_created(tmp_path: Path) -> None:
    """The topic is there, those of its logs that are not yet are made when there is room."""

    async def scenario(broker: InProcess, files: FaultyFiles) -> None:
        files.room_for_directories = 2
        created = (await broker.ask(CreateTopicsRequest([CreatableTopic(TOPIC, 4, 1)]), 7)).topics[0]
        assert created.error_code == 0

        async def produce(index: int) -> int:
            request = produce_request(TOPIC, batch(b"x"), partition=index)
            return int(response_of(await broker.ask(request, 9)).error_code)

        assert [await produce(index) for index in range(4)] == [0, 0, *[ErrorCode.KAFKA_STORAGE_ERROR] * 2]
        files.room_for_directories = 100
        broker.broker._maintenance.checkpoint()
        assert [await produce(index) for index in range(4)] == [0, 0, 0, 0]

    run(tmp_path, scenario)


def test_a_file_that_cannot_be_opened_keeps_no_other_from_being_synced(tmp_path: Path) -> None:
    """Once this kept every partition from being synced ever again."""

    async def scenario(broker: InProcess, files: FaultyFiles) -> None:
        await broker.create_topic(TOPIC)
        await broker.create_topic("other")
        await broker.produce(TOPIC, [(None, b"before")])
        log = broker.broker.replicas.get(TOPIC, 0).log
        waiting = asyncio.ensure_future(broker.produce(TOPIC, [(None, b"waits")]))
        await asyncio.sleep(0)  # it is appended now, and not synced
        files.unopened = log.active.log.path
        log.active.log.close()
        assert (await broker.produce("other", [(None, b"x")])).error_code == 0
        assert not waiting.done()
        files.unopened = ""
        assert ((await waiting).error_code, (await waiting).base_offset) == (0, 1)

    run(tmp_path, scenario)


def test_files_that_cannot_be_opened_are_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "RETRY_SECONDS", 0.001)

    async def scenario(broker: InProcess, files: FaultyFiles) -> None:
        await broker.create_topic(TOPIC)
        await broker.produce(TOPIC, [(None, b"before")])
        log = broker.broker.replicas.get(TOPIC, 0).log
        attempts = 0
        begin_sync = type(log).begin_sync

        def counted(self: Any) -> Any:
            nonlocal attempts
            attempts += 1
            return begin_sync(self)

        monkeypatch.setattr(type(log), "begin_sync", counted)
        waiting = asyncio.ensure_future(broker.produce(TOPIC, [(None, b"waits")]))
        await asyncio.sleep(0)
        files.unopened = log.active.log.path
        log.active.log.close()
        while attempts < 5:
            await asyncio.sleep(0)
        files.unopened = ""
        assert (await waiting).error_code == 0

    with caplog.at_level("INFO", "odradek.services.partitions.flusher"):
        run(tmp_path, scenario)
    assert [
        record.levelname for record in caplog.records if record.name == "odradek.services.partitions.flusher"
    ] == [
        "ERROR",
        "INFO",
    ]


def test_a_round_takes_no_more_files_than_may_be_open(tmp_path: Path) -> None:
    """The rest goes with the next ones, and everybody is answered."""

    async def scenario(broker: InProcess, files: FaultyFiles) -> None:
        rounds: list[int] = []
        sync_many = files.sync_many

        def counted(some: Any) -> None:
            rounds.append(len(some))
            sync_many(some)

        files.sync_many = counted  # type: ignore[method-assign]
        topics = [f"topic-{number}" for number in range(12)]
        for topic in topics:
            await broker.create_topic(topic)
            await broker.produce(topic, [(None, b"x")])
        rounds.clear()
        broker.broker._flusher._max_files = 5
        responses = await asyncio.gather(*(broker.produce(topic, [(None, b"y")]) for topic in topics))
        assert [(response.error_code, response.base_offset) for response in responses] == [(0, 1)] * 12
        assert rounds and max(rounds) <= 5

    run(tmp_path, scenario)


def test_a_topic_deleted_and_gone_before_it_was_synced(tmp_path: Path) -> None:
    async def scenario(broker: InProcess, files: FaultyFiles) -> None:
        await broker.create_topic(TOPIC, file_delete_delay_ms="0")
        await broker.create_topic("other")
        await broker.produce(TOPIC, [(None, b"x")], acks=1)
        await broker.ask(DeleteTopicsRequest([DeleteTopicState(TOPIC)], timeout_ms=5000), 6)
        broker.broker._maintenance.checkpoint()
        assert (await broker.produce("other", [(None, b"x")])).error_code == 0

    run(tmp_path, scenario)


def test_a_file_that_cannot_be_read_is_a_storage_error(tmp_path: Path) -> None:
    async def scenario(broker: InProcess, files: FaultyFiles) -> None:
        await broker.create_topic(TOPIC)
        for _ in range(2):
            await broker.produce(TOPIC, [(None, b"x" * 5000)])
        log = broker.broker.replicas.get(TOPIC, 0).log
        log._row.tail.reset(log.end_offset)  # what is remembered of the newest batches
        files.unopened = log.active.log.path
        log.active.log.close()
        found = (await broker.ask(fetch_request(TOPIC), 12)).responses[0].partitions[0]
        assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    run(tmp_path, scenario)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes, where we may mount one."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_really_is_full(small_disk: Path) -> None:
    with running_broker(small_disk) as broker, Raw(broker.bootstrap) as raw:
        raw.create(TOPIC)
        value = bytes(range(256)) * 1000
        stored = 0
        while (response := raw.produce(TOPIC, batch(value))).error_code == 0:
            stored += 1
            assert stored < 100
        assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert raw.fetch(TOPIC).high_watermark == stored
        assert len(raw.fetch(TOPIC, offset=stored - 1).records) > len(value)
        assert (
            raw.ask(DeleteTopicsRequest([DeleteTopicState(TOPIC)], timeout_ms=5000)).responses[0].error_code
            == 0
        )
