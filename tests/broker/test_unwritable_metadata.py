"""Requests that change metadata while the metadata log cannot be written: error codes, no lost connection, no doubt."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.main import Broker, _serve
from odradek.broker.node import BrokerFailed
from odradek.config.broker import BrokerConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import ResourceType
from odradek.model import NO_TOPIC_ID
from odradek.wire.messages import alter_configs, incremental_alter_configs
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.in_process import InProcess
from tests.broker.test_disk_faults import FaultyFiles, run_on, small_disk  # noqa: F401
from tests.protocol.raw import Raw, batch
from tests.support import RunningBroker, running_broker

TIMEOUT_S = 30
TOPIC = "there"


def run(data_dir: Path, scenario: Callable[[InProcess, FaultyFiles], Awaitable[None]]) -> None:
    run_on(FaultyFiles(), data_dir, scenario)


def outcome_of_topics(response: Any) -> list[int]:
    return [topic.error_code for topic in response.topics]


def outcome_of_responses(result: Any) -> list[int]:
    return [response.error_code for response in result.responses]


def outcome_of_results(response: Any) -> list[int]:
    return [result.error_code for result in response.results]


def set_retention(value: str) -> Any:
    change = incremental_alter_configs.AlterableConfig("retention.ms", 0, value)
    resource = incremental_alter_configs.AlterConfigsResource(ResourceType.TOPIC, TOPIC, [change])
    broker = incremental_alter_configs.AlterableConfig("log.retention.ms", 0, value)
    default = incremental_alter_configs.AlterConfigsResource(ResourceType.BROKER, "", [broker])
    return incremental_alter_configs.IncrementalAlterConfigsRequest([resource, default])


def replace_settings(value: str) -> Any:
    change = alter_configs.AlterableConfig("retention.ms", value)
    return alter_configs.AlterConfigsRequest(
        [alter_configs.AlterConfigsResource(ResourceType.TOPIC, TOPIC, [change])]
    )


REQUESTS: dict[str, tuple[Any, int, Callable[[Any], list[int]], int]] = {
    "CreateTopics": (
        CreateTopicsRequest([CreatableTopic("one", 2, 1), CreatableTopic("two", 1, 1)]),
        7,
        outcome_of_topics,
        2,
    ),
    "CreatePartitions": (
        CreatePartitionsRequest([CreatePartitionsTopic(TOPIC, 5, None)], 5000),
        3,
        outcome_of_results,
        1,
    ),
    "IncrementalAlterConfigs": (set_retention("60000"), 1, outcome_of_responses, 2),
    "AlterConfigs": (replace_settings("70000"), 2, outcome_of_responses, 1),
    "DeleteTopics": (DeleteTopicsRequest([DeleteTopicState(TOPIC)], timeout_ms=5000), 6, outcome_of_responses, 1),
}  # fmt: skip


@pytest.mark.parametrize("api", REQUESTS)
def test_each_item_carries_the_error_and_works_once_there_is_room(tmp_path: Path, api: str) -> None:
    request, version, outcome, count = REQUESTS[api]

    async def scenario(broker: InProcess, files: FaultyFiles) -> None:
        await broker.create_topic(TOPIC)
        before = broker.broker.metadata.image
        files.is_full = True
        for _ in range(2):
            response = await broker.ask(request, version)
            assert outcome(response) == [ErrorCode.KAFKA_STORAGE_ERROR] * count
            assert broker.broker.metadata.image is before
        files.is_full = False
        assert outcome(await broker.ask(request, version)) == [0] * count
        assert broker.broker.metadata.image is not before

    run(tmp_path, scenario)
    run(tmp_path, still_there(api))


def still_there(api: str) -> Callable[[InProcess, FaultyFiles], Awaitable[None]]:
    """After a restart: what was answered NONE, and nothing of what was refused before."""

    async def scenario(broker: InProcess, files: FaultyFiles) -> None:
        image = broker.broker.metadata.image
        assert (TOPIC in image.topics) == (api != "DeleteTopics")
        assert ("one" in image.topics) == (api == "CreateTopics")
        if api == "CreatePartitions":
            assert len(image.topics[TOPIC].partitions) == 5

    return scenario


def test_a_topic_that_could_not_be_created_has_no_id(tmp_path: Path) -> None:
    async def scenario(broker: InProcess, files: FaultyFiles) -> None:
        files.is_full = True
        wanted = [CreatableTopic("bad name", 1, 1), CreatableTopic("good", 1, 1)]
        bad, good = (await broker.ask(CreateTopicsRequest(wanted), 7)).topics
        assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION, (
            "its own error, which a retry would not mend"
        )
        assert good.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (good.topic_id, good.num_partitions, good.configs) == (NO_TOPIC_ID, -1, [])
        assert "No space left" in good.error_message
        files.is_full = False
        await broker.create_topic("good")
        assert (await broker.produce("good", [(None, b"x")])).base_offset == 0

    run(tmp_path, scenario)


def test_validating_needs_no_room(tmp_path: Path) -> None:
    async def scenario(broker: InProcess, files: FaultyFiles) -> None:
        files.is_full = True
        request = CreateTopicsRequest([CreatableTopic("t", 1, 1)], validate_only=True)
        assert outcome_of_topics(await broker.ask(request, 7)) == [0]

    run(tmp_path, scenario)


def test_producer_ids_and_auto_creation(tmp_path: Path) -> None:
    async def scenario(broker: InProcess, files: FaultyFiles) -> None:
        files.is_full = True
        refused = await broker.ask(InitProducerIdRequest(None, 60_000), 4)
        assert refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert refused.producer_id == -1
        wanted = MetadataRequest([MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True)
        assert outcome_of_topics(await broker.ask(wanted, 12)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        files.is_full = False
        assert (await broker.ask(InitProducerIdRequest(None, 60_000), 4)).producer_id >= 0
        assert outcome_of_topics(await broker.ask(wanted, 12)) == [0]

    run(tmp_path, scenario)


# --- the sync of the metadata log ---


class SyncFails(FaultyFiles):
    """The sync of the metadata log fails when told to."""

    is_failing = False

    def sync_many(self, files: Any) -> None:
        if self.is_failing and any("__cluster_metadata" in file.path for file in files):
            raise OSError(5, "Input/output error")
        super().sync_many(files)


def test_a_sync_that_fails_stops_the_broker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody knows whether the topic is on disk: nothing more is decided on it, and the reason is said."""

    async def main() -> None:
        files = SyncFails()
        async with InProcess(str(tmp_path), files) as broker:
            before = broker.broker.metadata.image
            files.is_failing = True
            for name in ("one", "two"):
                response = await broker.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1)]), 7)
                assert outcome_of_topics(response) == [ErrorCode.KAFKA_STORAGE_ERROR]
                assert "Input/output error" in str(broker.broker.failure)
            assert broker.broker.metadata.image is before

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))
    assert "this broker stops" in caplog.text


def test_the_process_ends_with_the_reason_when_its_broker_fails(tmp_path: Path) -> None:
    config = BrokerConfig({"listeners": "PLAINTEXT://localhost:0", "log.dirs": str(tmp_path)})

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        await _serve(config, loop, lambda broker: broker._failed("the disk is gone"), Broker, None)

    with pytest.raises(BrokerFailed, match="the disk is gone"):
        asyncio.run(asyncio.wait_for(serve(), TIMEOUT_S))


def test_a_sync_that_cannot_begin_is_begun_again(tmp_path: Path) -> None:
    """The sync finds no descriptor: the change is appended, so the next decision builds on it, and it is committed."""

    async def scenario(broker: InProcess, files: FaultyFiles) -> None:
        log = broker.broker.metadata._log._store.log
        path = log.active.log.path

        def not_now() -> Any:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot open {path}: too many open files")

        metadata = broker.broker.metadata
        metadata._log._store.log = NoSync(log, not_now)
        response = await broker.ask(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7)
        assert outcome_of_topics(response) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert "t" not in metadata.image.topics
        response = await broker.ask(CreateTopicsRequest([CreatableTopic("u", 1, 1)]), 7)
        assert outcome_of_topics(response) == [ErrorCode.KAFKA_STORAGE_ERROR]
        metadata._log._store.log = log
        broker.broker._maintenance.checkpoint()
        assert list(metadata.image.topics) == ["t"]
        assert (await broker.produce("t", [(None, b"x")])).base_offset == 0
        assert broker.broker.failure is None

    run(tmp_path, scenario)


class NoSync:
    """A log that cannot begin a sync, and is otherwise the one it stands for."""

    def __init__(self, log: Any, sync: Callable[[], Any]) -> None:
        self._log = log
        self.sync = sync

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


# --- through sockets ---


def test_a_disk_that_really_is_full(small_disk: Path) -> None:  # noqa: F811
    """Without a reserve, which keeps room for the metadata."""
    with running_broker(small_disk, disk_reserve_bytes="0") as broker, Raw(broker.bootstrap) as raw:
        raw.create("t")
        value = bytes(range(256)) * 1000
        while raw.produce("t", batch(value)).error_code == 0:
            pass
        while raw.produce("t", batch(b"x")).error_code == 0:  # every last byte
            pass
        wanted = [CreatableTopic(f"new-{number}", 50, 1) for number in range(20)]
        codes = set(outcome_of_topics(raw.ask(CreateTopicsRequest(wanted))))
        assert codes == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert raw.ask(InitProducerIdRequest(None, 60_000), 4).error_code in (
            ErrorCode.NONE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        )


def test_a_start_on_a_full_disk_says_what_to_do(small_disk: Path, tmp_path: Path) -> None:  # noqa: F811
    """And the stop before it, which cannot bring everything to disk, is a stop all the same."""
    broker = RunningBroker(small_disk / "data", {})
    broker._log = tmp_path / "log"
    broker.start()
    with Raw(broker.bootstrap) as raw:
        raw.create("t")
        while raw.produce("t", batch(bytes(200_000))).error_code == 0:
            pass
    filler = os.open(small_disk / "filler", os.O_CREAT | os.O_WRONLY)
    with suppress(OSError):
        while True:
            os.write(filler, bytes(512))
    os.close(filler)
    assert broker.stop() == 0
    broker.launch()
    assert broker.process.wait(TIMEOUT_S) == 1
    assert "no space left on the disk of" in broker.log
    (small_disk / "filler").unlink()
    broker.start()
    assert broker.stop() == 0
