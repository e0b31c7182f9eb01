"""Compacted topics are compacted by the running broker, in a process of its own, and stay readable."""

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from odradek.host.real import RealHost
from odradek.metadata.image import ResourceType
from odradek.storage.disk.files import DiskFiles
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.in_process import InProcess
from tests.support import no_descriptors_at_all

TOPIC = "compacted"
SETTINGS = {"internal_segment_bytes": "600", "cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}


def test_the_last_value_of_every_key_stays(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with InProcess(str(tmp_path), settings={"log.cleaner.enable": "false"}) as broker:
            await broker.create_topic(TOPIC, **SETTINGS)
            for turn in range(40):
                await broker.produce(TOPIC, [(b"key-%d" % (turn % 4), b"value-%d" % turn)])
            before = broker.records(TOPIC)
            compactor = broker.broker._compactor
            while await compactor.clean_one():
                pass
            await compactor._cleaner.stop()
            after = broker.records(TOPIC)
            assert len(after) < len(before) / 2
            assert {record.key: record.value for record in after} == {
                record.key: record.value for record in before
            }
            assert set(after) <= set(before)
            assert await compactor.clean_one() is False

    asyncio.run(scenario())


def test_a_topic_deleted_while_it_is_compacted_leaves_no_clean_offset(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with InProcess(str(tmp_path), settings={"log.cleaner.enable": "false"}) as broker:
            await broker.create_topic(TOPIC, **SETTINGS)
            for turn in range(20):
                await broker.produce(TOPIC, [(b"key", b"value-%d" % turn)])
            compactor = broker.broker._compactor
            clean = compactor._cleaner.clean

            async def clean_a_deleted_log(*arguments: Any) -> Any:
                stats = await clean(*arguments)
                await broker.ask(DeleteTopicsRequest([DeleteTopicState(TOPIC)], timeout_ms=5000), 6)
                await broker.create_topic(TOPIC, **SETTINGS)
                broker.broker.replicas.get(TOPIC, 0)
                return stats

            compactor._cleaner.clean = clean_a_deleted_log  # type: ignore[method-assign]
            assert await compactor.clean_one()
            assert compactor._clean_offsets.offsets == {}
            await compactor._cleaner.stop()

    asyncio.run(scenario())


def test_what_is_clean_is_remembered_over_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {"log.cleaner.enable": "false"}
        async with InProcess(str(tmp_path), settings=settings) as broker:
            await broker.create_topic(TOPIC, **SETTINGS)
            for turn in range(20):
                await broker.produce(TOPIC, [(b"key", b"value-%d" % turn)])
            while await broker.broker._compactor.clean_one():
                pass
            await broker.broker._compactor._cleaner.stop()
        async with InProcess(str(tmp_path), settings=settings) as broker:
            assert await broker.broker._compactor.clean_one() is False
            assert broker.records(TOPIC)[-1].value == b"value-19"

    asyncio.run(scenario())


def unlinked_but_open(directory: Path) -> list[str]:
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            target = os.readlink(descriptor)
            if target.startswith(str(directory)) and target.endswith(" (deleted)"):
                found.append(target)
    return found


def test_compacting_again_and_again_within_the_delay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Segments keep their base offsets: once, each round renamed one over the one before it, whose removal failed
    for ever, and with it that of every other topic."""

    async def scenario() -> None:
        async with InProcess(str(tmp_path), settings={"log.cleaner.enable": "false"}) as broker:
            await broker.create_topic(TOPIC, **SETTINGS | {"internal_segment_bytes": "1500"})
            await broker.create_topic("other")
            await broker.produce("other", [(None, b"x")])
            compactor, store = broker.broker._compactor, broker.broker._store
            files = broker.broker._files
            assert isinstance(files, DiskFiles)
            open_before = 0
            for turn in range(12):
                for _ in range(2):
                    await broker.produce(TOPIC, [(b"key-%d" % key, b"%d" % turn) for key in range(50)])
                assert await compactor.clean_one()
                open_before = open_before or len(files.open_files)
            await compactor._cleaner.stop()
            await broker.ask(DeleteTopicsRequest([DeleteTopicState("other")], timeout_ms=5000), 6)
            assert len(store.deletions) > 12
            assert len(files.open_files) < open_before + 6
            far = RealHost.now_ms() + 3_600_000
            attempts = 0
            while store.deletions.run_next(far):
                attempts += 1
                assert attempts < 1000
            assert len(store.deletions) == 0
            assert not [name for name in os.listdir(tmp_path / f"{TOPIC}-0") if name.endswith(".deleted")]
            assert not [name for name in os.listdir(tmp_path) if name.endswith("-delete")]
            assert not unlinked_but_open(tmp_path)
            assert {record.value for record in broker.records(TOPIC)[-50:]} == {b"11"}

    asyncio.run(scenario())
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_compacted_topic_is_deleted_with_its_retired_segments(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with InProcess(str(tmp_path), settings={"log.cleaner.enable": "false"}) as broker:
            await broker.create_topic(TOPIC, **SETTINGS)
            for turn in range(20):
                await broker.produce(TOPIC, [(b"key-%d" % (turn % 3), b"value-%d" % turn)])
            while await broker.broker._compactor.clean_one():
                pass
            await broker.broker._compactor._cleaner.stop()
            await broker.ask(DeleteTopicsRequest([DeleteTopicState(TOPIC)], timeout_ms=5000), 6)
            deletions = broker.broker._store.deletions
            while deletions.run_next(RealHost.now_ms() + 3_600_000):
                pass
            assert len(deletions) == 0
            assert not [name for name in os.listdir(tmp_path) if name.startswith(TOPIC)]
            assert not unlinked_but_open(tmp_path)

    asyncio.run(scenario())
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_compaction_goes_on_after_a_moment_without_descriptors(tmp_path: Path) -> None:
    """Whatever cannot be opened then, for the process or for the log, the log is as it was and its turn comes again."""

    async def scenario() -> None:
        async with InProcess(str(tmp_path), settings={"log.cleaner.enable": "false"}) as broker:
            await broker.create_topic(TOPIC, **SETTINGS)
            for turn in range(20):
                await broker.produce(TOPIC, [(b"key-%d" % (turn % 3), b"value-%d" % turn)])
            before = {record.key: record.value for record in broker.records(TOPIC)}
            compactor = broker.broker._compactor
            with no_descriptors_at_all():
                assert not await compactor._try_to_clean_one()
            assert not broker.broker.replicas.get(TOPIC, 0).log.failed
            assert await compactor.clean_one()
            await compactor._cleaner.stop()
            assert {record.key: record.value for record in broker.records(TOPIC)} == before

    asyncio.run(scenario())


def test_a_topic_that_becomes_compacted_is_compacted_without_another_append(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {"log.cleaner.enable": "false"}
        async with InProcess(str(tmp_path), settings=settings) as broker:
            await broker.create_topic(TOPIC, **{**SETTINGS, "cleanup_policy": "delete"})
            await broker.create_topic(
                "by-default", internal_segment_bytes="600", min_cleanable_dirty_ratio="0.01"
            )
            for turn in range(40):
                await broker.produce(TOPIC, [(b"key", b"value-%d" % turn)])
                await broker.produce("by-default", [(b"key", b"value-%d" % turn)])
            compactor = broker.broker._compactor
            assert await compactor.clean_one() is False
            await alter(broker, ResourceType.TOPIC, TOPIC, "cleanup.policy", "compact")
            assert await compactor.clean_one() is True
            assert len(broker.records(TOPIC)) < 20
            await alter(broker, ResourceType.BROKER, "", "log.cleanup.policy", "compact")
            while await compactor.clean_one():
                pass
            await compactor._cleaner.stop()
            assert len(broker.records("by-default")) < 20

    asyncio.run(scenario())


async def alter(broker: InProcess, resource_type: ResourceType, name: str, setting: str, value: str) -> None:
    resource = AlterConfigsResource(resource_type, name, [AlterableConfig(setting, 0, value)])
    response = await broker.ask(IncrementalAlterConfigsRequest([resource]), 1)
    assert response.responses[0].error_code == 0, response


def test_a_broker_stops_that_was_just_reconfigured(tmp_path: Path) -> None:
    """The compactor rested, was told of new settings, and in the same turn to end: it heard only the first."""

    async def scenario() -> None:
        async with InProcess(str(tmp_path)) as broker:
            compactor = broker.broker._compactor
            task = asyncio.create_task(compactor.run())
            for _ in range(5):
                await asyncio.sleep(0)
            compactor.reconfigure(broker.broker.config)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=60)
            assert done

    asyncio.run(scenario())
