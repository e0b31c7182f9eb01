"""Compacted topics are compacted by the running broker, in a process of its own, and stay readable."""

import asyncio
from pathlib import Path

from tests.broker.in_process import InProcess

from odradek.metadata.image import ResourceType
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

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
    answer = await broker.ask(IncrementalAlterConfigsRequest([resource]), 1)
    assert answer.responses[0].error_code == 0, answer
