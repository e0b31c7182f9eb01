"""Compacted topics are compacted by the running broker, in a process of its own, and stay readable."""

import asyncio
from pathlib import Path
from typing import Any

from tests.broker.in_process import InProcess

from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

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
