"""Tests of what a broker logs of what clients change, of what they are refused, and of its own start."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.services.partitions.flusher import Flusher
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.in_process import InProcess

CLIENT = '127.0.0.1:1 (client "test")'
TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1


@pytest.fixture(autouse=True)
def level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def run(tmp_path: Path, work: Callable[[InProcess], Awaitable[None]], **settings: str) -> None:
    async def main() -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        async with InProcess(str(tmp_path / "data"), settings=named) as broker:
            await work(broker)

    asyncio.run(main())


def said(caplog: pytest.LogCaptureFixture, about: str) -> list[str]:
    return [line for line in caplog.messages if about in line]


# --- changes ---


def test_topics_come_change_and_go(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(broker: InProcess) -> None:
        await broker.create_topic("foo", retention_ms="1000")
        await broker.ask(CreatePartitionsRequest([CreatePartitionsTopic("foo", 3, None)]), 3)
        await alter(broker, TOPIC, "foo", ("retention.ms", SET, "2000"), ("segment.ms", SET, "5000"))
        await alter(broker, TOPIC, "foo", ("retention.ms", DELETE, None))
        await broker.ask(DeleteTopicsRequest([DeleteTopicState("foo")]), 6)

    run(tmp_path, work)
    created, added, retention, segment, default, deleted = said(caplog, "topic foo")
    assert created.startswith(f"{CLIENT} created topic foo (id ")
    assert created.endswith(") with 1 partition, replication factor 1, retention.ms=1000")
    assert added == f"{CLIENT} added 2 partitions to topic foo, which has 3 now"
    assert retention == f"{CLIENT} set retention.ms of topic foo from 1000 to 2000"
    assert segment == f"{CLIENT} set segment.ms of topic foo from its default to 5000"
    assert default == f"{CLIENT} set retention.ms of topic foo from 2000 to its default"
    assert deleted.startswith(f"{CLIENT} deleted topic foo (id ") and deleted.endswith(") with 3 partitions")
    record = next(each for each in caplog.records if each.message == added)
    assert record.fields == {  # type: ignore[attr-defined]
        "client": "test",
        "address": "127.0.0.1:1",
        "topic": "foo",
        "partitions": 3,
    }


async def alter(broker: InProcess, kind: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
    configs = [AlterableConfig(*change) for change in changes]
    return await broker.ask(IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, configs)]), 1)


def test_settings_of_brokers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(broker: InProcess) -> None:
        await alter(broker, BROKER, "", ("log.retention.ms", SET, "60000"))

    run(tmp_path, work)
    assert said(caplog, "of all brokers") == [
        f"{CLIENT} set log.retention.ms of all brokers from its default to 60000"
    ]


def test_a_topic_that_comes_because_somebody_asked_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(broker: InProcess) -> None:
        await broker.ask(MetadataRequest([MetadataRequestTopic(name="new")], True), 12)

    run(tmp_path, work)
    assert said(caplog, "topic new")[0].startswith(f"{CLIENT} created topic new (id ")


def test_a_topic_that_the_broker_needs_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(broker: InProcess) -> None:
        await broker.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)

    run(tmp_path, work)
    (created,) = said(caplog, "created topic")
    assert created.startswith("broker 1 itself created topic __consumer_offsets (id ")


def test_of_a_large_request_only_some_changes_are_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(broker: InProcess) -> None:
        await broker.ask(CreateTopicsRequest([CreatableTopic(f"t{n}", 1, 1) for n in range(40)]), 7)

    run(tmp_path, work)
    assert len(said(caplog, "created topic t")) == 20
    assert said(caplog, "changed more in the same request")


def test_records_that_are_deleted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(broker: InProcess) -> None:
        await broker.create_topic("foo")
        await broker.produce("foo", [(None, b"x")] * 5)
        topic = DeleteRecordsTopic("foo", [DeleteRecordsPartition(0, 3)])
        await broker.ask(DeleteRecordsRequest([topic], 1_000), 2)
        await broker.ask(DeleteRecordsRequest([topic], 1_000), 2)  # nothing is left to delete

    run(tmp_path, work)
    assert said(caplog, "deleted the records") == [
        f"{CLIENT} deleted the records of foo-0 from offset 0 to 2"
    ]


# --- refusals ---


def test_what_is_refused_and_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(broker: InProcess) -> None:
        topics = [CreatableTopic(name, 1, 1) for name in ("a b", "a\nINFO c", "x" * 300)]
        await broker.ask(CreateTopicsRequest(topics), 7)
        await broker.create_topic("foo")
        await broker.ask(CreateTopicsRequest([CreatableTopic("foo", 1, 1)]), 7)
        await alter(broker, TOPIC, "foo", ("retention.ms", SET, "soon"))

    run(tmp_path, work)
    lines = said(caplog, "refused")
    assert f"refused CreateTopics v7 of \"foo\" from {CLIENT}: TOPIC_ALREADY_EXISTS: Topic 'foo' already" in (
        "\n".join(lines)
    )
    (invalid,) = (line for line in lines if "INVALID_TOPIC_EXCEPTION" in line)
    assert invalid.startswith(r'refused CreateTopics v7 of "a b", "a\nINFO c", "xxx')
    assert f'xxx… (200 more characters)" from {CLIENT}: INVALID_TOPIC_EXCEPTION: Topic name is inv' in invalid
    assert all("\n" not in line for line in lines)
    assert any(
        line.startswith(f'refused IncrementalAlterConfigs v1 of "foo" from {CLIENT}: INVALID_CONFIG')
        for line in lines
    )
    record = next(each for each in caplog.records if "TOPIC_ALREADY_EXISTS" in each.message)
    assert record.levelno == logging.INFO
    assert record.fields["api"] == "CreateTopics"  # type: ignore[attr-defined]
    assert record.fields["error"] == "TOPIC_ALREADY_EXISTS"  # type: ignore[attr-defined]


def test_the_same_refusal_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(broker: InProcess) -> None:
        for _ in range(10):
            await broker.ask(MetadataRequest([MetadataRequestTopic(name="none")], False), 12)

    run(tmp_path, work)
    first, rest = said(caplog, '"none"')
    assert first == (
        f'refused Metadata v12 of "none" from {CLIENT}: '
        "UNKNOWN_TOPIC_OR_PARTITION: there is no such topic or partition"
    )
    assert rest == (
        '… 9 more in the last 1 s from 127.0.0.1: Metadata of "none" refused with UNKNOWN_TOPIC_OR_PARTITION'
    )


def test_refusals_of_groups_name_the_group(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(broker: InProcess) -> None:
        await broker.broker.services.coordination.groups.find("g")
        await broker.ask(HeartbeatRequest("g", 1, "me", None), 4)
        protocols = [JoinGroupRequestProtocol("range", b"")]
        join = JoinGroupRequest("g", 1, 60_000, "", None, "consumer", protocols)
        await broker.ask(join, 9)

    run(tmp_path, work)
    assert f'refused Heartbeat v4 of group "g" from {CLIENT}: UNKNOWN_MEMBER_ID: the group does not know' in (
        caplog.text
    )
    assert f'refused JoinGroup v9 of group "g" from {CLIENT}: INVALID_SESSION_TIMEOUT: its session' in (
        caplog.text
    )


def test_the_normal_course_of_a_protocol_is_no_refusal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(broker: InProcess) -> None:
        await broker.broker.services.coordination.groups.find("g")
        protocols = [JoinGroupRequestProtocol("range", b"")]
        join = JoinGroupRequest("g", 10_000, 60_000, "", None, "consumer", protocols)
        assert (await broker.ask(join, 9)).error_code == ErrorCode.MEMBER_ID_REQUIRED

    run(tmp_path, work)
    assert not said(caplog, "refused")


def test_a_group_that_is_asked_for_by_both_protocols_is_refused_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka's admin client, and ours, ask for every group by the newer protocol first."""

    async def work(broker: InProcess) -> None:
        await broker.broker.services.coordination.groups.find("g")
        newer = await broker.ask(ConsumerGroupDescribeRequest(["g"]), 1)
        assert newer.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert not said(caplog, "refused")
        await broker.ask(DescribeGroupsRequest(["g"]), 6)

    run(tmp_path, work)
    (line,) = said(caplog, "refused")
    assert line.startswith('refused DescribeGroups v6 of "g"')


def test_refusals_of_produce_and_fetch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(broker: InProcess) -> None:
        await broker.create_topic("foo")
        await broker.produce("none", [(None, b"x")])
        data = TopicProduceData(name="foo", partition_data=[PartitionProduceData(0, b"not a batch")])
        await broker.ask(ProduceRequest(None, -1, 30_000, [data]), 9)
        fetch = FetchRequest(
            max_wait_ms=0, topics=[FetchTopic(topic="foo", partitions=[FetchPartition(0, -1, 99)])]
        )
        await broker.ask(fetch, 11)

    run(tmp_path, work)
    lines = said(caplog, "refused")
    assert lines[0].startswith(
        f'refused Produce v9 of "none", partition 0 from {CLIENT}: UNKNOWN_TOPIC_OR_PARTITION'
    )
    assert lines[1].startswith(f'refused Produce v9 of "foo", partition 0 from {CLIENT}: ')
    assert lines[2].startswith(
        f'refused Fetch v11 of "foo", partition 0 from {CLIENT}: OFFSET_OUT_OF_RANGE: foo-0 is empty'
    )
    assert len(lines) == 3


# --- starts ---


def test_starts_say_what_they_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def fill(broker: InProcess) -> None:
        await broker.create_topic("foo")
        await broker.produce("foo", [(None, b"x")] * 5)

    async def nothing(broker: InProcess) -> None: ...

    def start(work: Callable[[InProcess], Awaitable[None]]) -> str:
        caplog.clear()
        run(tmp_path, work)
        (line,) = [line for line in caplog.messages if line.startswith(("opened", "recovered"))]
        return line

    data = tmp_path / "data"
    assert start(fill).startswith("opened 0 logs: there was nothing to recover, in ")
    clean = start(nothing)
    assert clean.startswith("opened 1 log: the last stop was clean, in ")
    assert clean.endswith(f"({data})")
    size = (data / "foo-0" / f"{0:020}.log").stat().st_size
    (data / ".kafka_cleanshutdown").unlink()
    assert start(nothing).startswith(
        "recovered 1 log, because the last stop was not clean: "
        f"scanned 1 segment ({size} bytes), cut nothing, in "
    )


def test_recovery_says_what_it_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def fill(broker: InProcess) -> None:
        await broker.create_topic("foo")
        for _ in range(3):
            await broker.produce("foo", [(None, b"x")] * 5)

    async def nothing(broker: InProcess) -> None: ...

    run(tmp_path, fill)
    data = tmp_path / "data"
    path = data / "foo-0" / f"{0:020}.log"
    content = bytearray(path.read_bytes())
    size = len(content)
    content[size // 3 * 2 - 1] ^= 1  # in the second of three batches
    path.write_bytes(content)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (data / name).unlink()
    (data / "gone-0").mkdir()
    (data / "gone-0" / f"{0:020}.log").touch()
    caplog.clear()
    run(tmp_path, nothing)
    third = size // 3
    assert (
        f"cut {path} from {size} to {third} bytes: the batch after offset 4 is incomplete or damaged, "
        "so 10 records from there on are lost"
    ) in caplog.messages
    (line,) = [line for line in caplog.messages if line.startswith("recovered")]
    assert f"cut {2 * third} bytes (10 whole records) off 1 log; set 1 stray log aside, in " in line


# --- slowness ---


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sync takes 2.5 s, as far as its clock can tell."""
    sync = Flusher._sync
    monkeypatch.setattr(Flusher, "_sync", lambda self, tickets: (sync(self, tickets)[0], 2.5))


async def produce_three(broker: InProcess) -> None:
    await broker.create_topic("foo")
    for _ in range(3):
        await broker.produce("foo", [(None, b"x")])


def test_a_slow_sync(tmp_path: Path, caplog: pytest.LogCaptureFixture, slow_disk: None) -> None:
    run(tmp_path, produce_three)
    slow, rest = said(caplog, "slow sync")
    assert slow == (
        "slow sync: 1 partition took 2.5 s (foo-0). Producers with acks=all wait for it: look at the disk"
    )
    assert rest == "… 2 more in the last 1 s from this disk: slow syncs"


def test_a_sync_is_only_slow_over_the_threshold(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, slow_disk: None
) -> None:
    run(tmp_path / "three", produce_three, slow_sync_ms="3000")
    run(tmp_path / "never", produce_three, slow_sync_ms="-1")
    assert not said(caplog, "slow sync")


def test_of_many_refusals_there_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(broker: InProcess) -> None:
        topics = [MetadataRequestTopic(name=f"none{n}") for n in range(100)]
        await broker.ask(MetadataRequest(topics, False), 12)

    run(tmp_path, work)
    (line,) = said(caplog, "refused")
    assert 'of "none0", "none1", "none2", "none3", "none4" and 95 more from' in line
