"""acks=all means on disk: whatever was acknowledged survives a disk that loses every write that was not synced.

kill -9 would not show it, because the page cache survives a process; so the whole broker runs on simulated files.
"""

import asyncio
import os
import random
import threading

import pytest

from odradek.errors import ErrorCode
from odradek.services.partitions import flusher
from odradek.storage.disk.simulated import SimulatedFiles
from tests.broker.in_process import InProcess

TOPIC = "t"


def disk_with(data_dir: str) -> SimulatedFiles:
    """The data directory itself is there for good; all that is in it is the broker's doing."""
    files = SimulatedFiles()
    files.make_directory(data_dir)
    path = data_dir
    while path != "/":
        path = os.path.dirname(path)
        files.sync_directory(path)
    return files


@pytest.mark.parametrize("seed", range(25))
def test_a_power_cut_loses_nothing_acknowledged(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = random.Random(seed)
    data_dir = str(tmp_path_factory.mktemp("data"))
    files = disk_with(data_dir)
    acknowledged: dict[int, bytes] = {}

    async def live_until_the_power_goes() -> None:
        broker = InProcess(data_dir, files)
        await broker.broker.start()
        held = {record.offset: record.value for record in broker.records(TOPIC)} if acknowledged else {}
        assert acknowledged.items() <= held.items()
        if not acknowledged:
            await broker.create_topic(TOPIC)
        for _ in range(rng.randrange(1, 12)):
            values = [rng.randbytes(rng.randrange(1, 50)) for _ in range(rng.randrange(1, 4))]
            response = await broker.produce(TOPIC, [(None, value) for value in values])
            assert response.error_code == ErrorCode.NONE
            acknowledged.update({response.base_offset + at: value for at, value in enumerate(values)})
        unanswered = broker.produce(TOPIC, [(None, b"never acknowledged")], acks=1)
        await unanswered
        files.crash(rng if rng.random() < 0.5 else None)

    for _ in range(4):
        asyncio.run(live_until_the_power_goes())


def test_a_consumer_sees_nothing_that_is_not_on_disk(tmp_path_factory: pytest.TempPathFactory) -> None:
    async def scenario() -> None:
        async with InProcess(str(tmp_path_factory.mktemp("data")), SimulatedFiles()) as broker:
            await broker.create_topic(TOPIC)
            partition = broker.broker.replicas.get(TOPIC, 0)
            await broker.produce(TOPIC, [(None, b"x")], acks=1)
            assert (partition.log.end_offset, partition.high_watermark) == (1, 0)
            await broker.produce(TOPIC, [(None, b"y")], acks=-1)
            assert partition.high_watermark == 2

    asyncio.run(scenario())


def test_a_clean_stop_answers_what_it_brought_to_disk(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "INLINE_BELOW_SECONDS", 0.0)
    files, syncing, may_end = SimulatedFiles(), threading.Event(), threading.Event()

    def sync_slowly() -> None:
        if threading.current_thread() is not threading.main_thread():
            syncing.set()
            assert may_end.wait(30)

    async def scenario() -> None:
        broker = InProcess(str(tmp_path_factory.mktemp("data")), files)
        await broker.broker.start()
        await broker.create_topic(TOPIC)
        files.on_sync = sync_slowly
        producing = asyncio.create_task(broker.produce(TOPIC, [(None, b"x")]))
        await asyncio.get_running_loop().run_in_executor(None, syncing.wait, 30)
        stopping = asyncio.create_task(broker.broker.stop())
        await asyncio.sleep(0)
        may_end.set()
        assert (await producing).error_code == ErrorCode.NONE
        await stopping

    asyncio.run(scenario())


def test_a_disk_that_cannot_sync_is_not_trusted_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    files = SimulatedFiles()

    async def scenario() -> None:
        async with InProcess(str(tmp_path_factory.mktemp("data")), files) as broker:
            await broker.create_topic(TOPIC)
            assert (await broker.produce(TOPIC, [(None, b"good")])).error_code == ErrorCode.NONE
            files.fail_syncs = 1
            for _ in range(2):
                response = await broker.produce(TOPIC, [(None, b"lost")])
                assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    asyncio.run(scenario())


def test_a_full_disk_refuses_and_recovers(tmp_path_factory: pytest.TempPathFactory) -> None:
    files = SimulatedFiles()

    async def scenario() -> None:
        async with InProcess(str(tmp_path_factory.mktemp("data")), files) as broker:
            await broker.create_topic(TOPIC)
            await broker.produce(TOPIC, [(None, b"first")])
            files.free_bytes = 10
            response = await broker.produce(TOPIC, [(None, b"no room for this")])
            assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert [record.value for record in broker.records(TOPIC)] == [b"first"]
            files.free_bytes = None
            assert (await broker.produce(TOPIC, [(None, b"second")])).base_offset == 1
            assert [record.value for record in broker.records(TOPIC)] == [b"first", b"second"]

    asyncio.run(scenario())
