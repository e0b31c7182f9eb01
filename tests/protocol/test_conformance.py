"""Traps that other Kafka-compatible servers fell into, each with the test that keeps us out of it."""

import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from odradek.apis.table import BROKER, SERVED, name_of
from odradek.errors import ErrorCode
from odradek.records.batch import read_header
from odradek.records.record import Record, build_batch, decode_batch
from odradek.wire.frame import encode_request
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.protocol.raw import Closed, Raw, batch, fetch_request, produce_request, with_size
from tests.support import RunningBroker, running_broker

TOPIC_RESOURCE = 2


def test_a_fetch_inside_a_batch_returns_the_whole_batch(raw: Raw, topic: str) -> None:
    raw.create(topic)
    raw.produce(topic, batch(b"a", b"b", b"c"))
    records = bytes(raw.fetch(topic, offset=2).records)
    assert [record.offset for record in decode_batch(records)] == [0, 1, 2]


@pytest.mark.parametrize("limits", [{"max_bytes": 1}, {"partition_max_bytes": 1}, {"max_bytes": -1}], ids=str)
def test_a_fetch_returns_one_batch_even_when_it_is_larger_than_the_limits(
    raw: Raw, topic: str, limits: dict[str, int]
) -> None:
    raw.create(topic)
    sent = batch(b"x" * 5000)
    raw.produce(topic, sent)
    raw.produce(topic, sent)
    assert len(raw.fetch(topic, **limits).records) == len(sent)


def test_only_the_first_partition_of_a_fetch_goes_beyond_the_limit(raw: Raw, topic: str) -> None:
    names = [topic, f"{topic}-2"]
    for name in names:
        raw.create(name)
        raw.produce(name, batch(b"x" * 5000))
    response = raw.ask(fetch_request(names, max_bytes=10), 12)
    sizes = [len(one.partitions[0].records or b"") for one in response.responses]
    assert sizes[0] > 5000
    assert sizes[1:] == [0]


def test_list_offsets_by_timestamp_finds_the_record_not_its_batch(raw: Raw, topic: str) -> None:
    raw.create(topic)
    records = [Record(slot, 1_000_000 + slot * 10, None, b"v") for slot in range(5)]
    raw.produce(topic, bytes(build_batch(records)))

    def find(timestamp: int) -> tuple[int, int]:
        asked = [ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=timestamp)])]
        found = raw.ask(ListOffsetsRequest(replica_id=-1, topics=asked)).topics[0].partitions[0]
        assert found.error_code == 0
        return found.offset, found.timestamp

    assert find(1_000_011) == (2, 1_000_020)
    assert find(1_000_020) == (2, 1_000_020)
    assert find(0) == (0, 1_000_000)
    assert find(1_000_041) == (-1, -1)
    assert find(-1) == (5, -1)
    assert find(-2) == (0, -1)
    assert find(-3) == (4, 1_000_040)


def test_describe_configs_returns_every_config_with_default_source_and_synonyms(raw: Raw, topic: str) -> None:
    raw.create(topic, retention_ms="5000")
    resource = DescribeConfigsResource(TOPIC_RESOURCE, topic, None)
    (result,) = raw.ask(DescribeConfigsRequest([resource], include_synonyms=True)).results
    entries = {entry.name: entry for entry in result.configs}
    assert len(entries) > 25
    assert all(entry.value is not None or entry.is_sensitive for entry in entries.values())
    overridden, default = entries["retention.ms"], entries["segment.bytes"]
    assert (overridden.value, overridden.config_source) == ("5000", 1)  # the topic's own
    assert next((item.name, item.value) for item in overridden.synonyms) == ("retention.ms", "5000")
    assert (default.value, default.config_source) == ("1073741824", 5)  # a default
    assert [item.name for item in default.synonyms] == ["log.segment.bytes"]


def test_offset_commit_metadata_round_trips(raw: Raw, topic: str) -> None:
    topic_id = raw.create(topic)
    raw.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    partition = OffsetCommitRequestPartition(0, 7, 3, "where I was: süß")
    asked = OffsetCommitRequest(
        "g", topics=[OffsetCommitRequestTopic(topic_id=topic_id, name=topic, partitions=[partition])]
    )
    committed = raw.ask(asked).topics[0].partitions[0]
    assert committed.error_code == 0
    groups = [OffsetFetchRequestGroup(group_id="g", topics=None)]
    (group,) = raw.ask(OffsetFetchRequest(groups=groups)).groups
    found = group.topics[0].partitions[0]
    assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (
        7,
        3,
        "where I was: süß",
    )


def test_create_partitions_returns_its_topics_array(raw: Raw, topic: str) -> None:
    raw.create(topic)
    wanted = [CreatePartitionsTopic(topic, 3, None), CreatePartitionsTopic(f"{topic}-none", 3, None)]
    results = raw.ask(CreatePartitionsRequest(wanted, 5000)).results
    assert [(result.name, ErrorCode(result.error_code).name) for result in results] == [
        (topic, "NONE"),
        (f"{topic}-none", "UNKNOWN_TOPIC_OR_PARTITION"),
    ]


def test_a_record_without_a_key_on_a_compacted_topic_is_an_invalid_record(raw: Raw, topic: str) -> None:
    raw.create(topic, cleanup_policy="compact")
    response = raw.produce(topic, batch(b"no key"))
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in response.record_errors] == [0]
    assert raw.produce(topic, batch(b"value", key=b"key")).error_code == 0


@pytest.mark.parametrize("codec", [0, 4], ids=["plain", "zstd"])
def test_max_message_bytes_holds_for_the_whole_batch_as_it_is_stored(
    raw: Raw, topic: str, codec: int
) -> None:
    raw.create(topic, max_message_bytes="1000")
    small = batch(b"x" * 200, b"x" * 200, codec=codec)
    assert raw.produce(topic, small).error_code == 0
    large = batch(*(b"x" * 200 for _ in range(10)), codec=codec)
    expected = ErrorCode.NONE if codec else ErrorCode.MESSAGE_TOO_LARGE
    assert raw.produce(topic, large).error_code == expected


def test_auto_create_through_metadata_honours_the_default_partition_count(raw: Raw, topic: str) -> None:
    response = raw.ask(MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True))
    assert (response.topics[0].error_code, len(response.topics[0].partitions)) == (0, 2)
    refused = MetadataRequest([MetadataRequestTopic(name=f"{topic}-2")], allow_auto_topic_creation=False)
    assert raw.ask(refused).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_api_versions_too_high_is_answered_in_version_0_with_the_range(raw: Raw) -> None:
    frame = bytearray(encode_request(ApiVersionsRequest("raw", "1"), 18, 3, 77, "raw"))
    frame[6:8] = (99).to_bytes(2, "big")
    raw.frame(ApiVersionsRequest(), 0)
    raw._sent[-1] = (18, 0, 77, ApiVersionsRequest)
    raw.socket.sendall(frame)
    response = raw.receive()
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    ranges = {item.api_key: (item.min_version, item.max_version) for item in response.api_keys}
    assert ranges[18] == (0, SERVED[BROKER][18].max_version)
    assert raw.ask(ApiVersionsRequest("raw", "1"), 3).error_code == 0  # the connection lives on


def test_responses_leave_in_the_order_of_requests(raw: Raw, topic: str) -> None:
    """A fetch that waits holds the responses behind it, though they are ready long before."""
    raw.create(topic)
    raw.send(fetch_request(topic, min_bytes=1, max_wait_ms=300), 12)
    for _ in range(20):
        raw.send(ApiVersionsRequest("raw", "1"))
    assert raw.receive().responses[0].partitions[0].error_code == 0
    for _ in range(20):
        assert raw.receive().error_code == 0


def test_effects_keep_the_order_of_pipelined_requests(raw: Raw, topic: str) -> None:
    """Produce to a topic, sent before its creation has been answered."""
    frames = [raw.frame(CreateTopicsRequest(topics=[CreatableTopic(topic, 1, 1)]))]
    frames += [raw.frame(produce_request(topic, batch(b"%d" % number), acks=1), 9) for number in range(5)]
    frames.append(raw.frame(DeleteTopicsRequest([DeleteTopicState(topic)], timeout_ms=5000)))
    frames.append(raw.frame(produce_request(topic, batch(b"late")), 9))
    raw.socket.sendall(b"".join(frames))
    assert raw.receive().topics[0].error_code == 0
    offsets = [raw.receive().responses[0].partition_responses[0].base_offset for _ in range(5)]
    assert offsets == [0, 1, 2, 3, 4]
    assert raw.receive().responses[0].error_code == 0
    late = raw.receive().responses[0].partition_responses[0]
    assert late.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("end", [RunningBroker.stop, RunningBroker.kill], ids=["stop", "kill"])
def test_a_new_leader_shows_no_lower_high_watermark(
    tmp_path: Path, topic: str, end: Callable[[RunningBroker], object]
) -> None:
    """The broker itself, in its next life: what was shown is shown again before anything is appended."""
    with running_broker(tmp_path) as broker:
        with Raw(broker.bootstrap) as raw:
            raw.create(topic)
            for _ in range(5):
                raw.produce(topic, batch(b"x"))
            shown = raw.fetch(topic).high_watermark
        end(broker)
        broker.start()
        with Raw(broker.bootstrap) as raw:
            assert raw.fetch(topic).high_watermark == shown == 5
            assert raw.produce(topic, batch(b"x")).base_offset == 5


def test_api_versions_advertises_produce_from_0(raw: Raw) -> None:
    ranges = {item.api_key: item for item in raw.ask(ApiVersionsRequest("raw", "1")).api_keys}
    assert ranges[0].min_version == 0


def test_unknown_tagged_fields_are_skipped(raw: Raw) -> None:
    """In the header and in the body, whatever they hold."""
    tags = b"\x02" + b"\x63\x03abc" + b"\x64\x00"
    header = (18).to_bytes(2, "big") + (3).to_bytes(2, "big") + (1).to_bytes(4, "big") + b"\xff\xff" + tags
    raw.socket.sendall(with_size(header + b"\x04raw" + b"\x021" + tags))
    raw._sent.append((18, 3, 1, ApiVersionsRequest))
    assert raw.receive().error_code == 0


@pytest.mark.parametrize(("api_key", "version"), [(9999, 0), (-1, 0), (4, 0), (3, 99), (0, 2), (3, -1)])
def test_an_unknown_api_or_version_closes_this_connection_alone(
    quiet_broker: RunningBroker, api_key: int, version: int
) -> None:
    with Raw(quiet_broker.bootstrap) as raw:
        with Raw(quiet_broker.bootstrap) as bad:
            start = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
            bad.socket.sendall(with_size(start + b"\0\0\0\x01\xff\xff" + b"\0" * 20))
            assert bad.is_closed()
        assert raw.ask(ApiVersionsRequest("raw", "1")).error_code == 0
    assert f"{name_of(api_key, version)} is not served" in quiet_broker.log


def test_illegal_topic_names_reach_no_path(tmp_path: Path) -> None:
    """On a broker of its own: another one may be creating and removing the logs of other tests' topics meanwhile."""
    with running_broker(tmp_path) as broker, Raw(broker.bootstrap) as raw:
        before = _directories(broker.data_dir)
        for name in ("", ".", "..", "a/b", "../up", "a b", "ä", "x" * 250, "a\0b"):
            (created,) = raw.ask(CreateTopicsRequest(topics=[CreatableTopic(name, 1, 1)])).topics
            assert created.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION, name
            asked = MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
            assert raw.ask(asked).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION, name
        assert _directories(broker.data_dir) == before


def _directories(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir() if entry.is_dir()}


def test_a_topic_created_anew_has_a_new_id_and_the_old_one_is_unknown(raw: Raw, topic: str) -> None:
    old = raw.create(topic)
    raw.produce(topic, batch(b"old"))
    raw.ask(DeleteTopicsRequest([DeleteTopicState(topic)], timeout_ms=5000))
    new = raw.create(topic)
    assert new != old

    def fetch(topic_id: UUID) -> tuple[int, int]:
        found = raw.fetch(topic, topic_id=topic_id, version=16)
        return found.error_code, found.high_watermark

    assert fetch(old) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)
    assert fetch(new) == (0, 0)
    request = produce_request(topic, batch(b"x"))
    request.topic_data[0].topic_id = old
    response = raw.ask(request, 13).responses[0].partition_responses[0]
    assert response.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    by_id = MetadataRequest([MetadataRequestTopic(topic_id=old, name=None)])
    assert raw.ask(by_id).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_internal_topics_look_like_kafkas_own(raw: Raw, topic: str) -> None:
    raw.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["any"]))
    listed = {found.name: found for found in raw.ask(MetadataRequest(topics=None)).topics}
    assert listed["__consumer_offsets"].is_internal
    assert len(listed["__consumer_offsets"].partitions) == 2
    resource = DescribeConfigsResource(TOPIC_RESOURCE, "__consumer_offsets", ["cleanup.policy"])
    (result,) = raw.ask(DescribeConfigsRequest([resource])).results
    assert result.configs[0].value == "compact"


def test_init_producer_id_gives_every_producer_a_new_id(raw: Raw) -> None:
    """One that comes with an id as well: it may not take another's over."""
    first = raw.ask(InitProducerIdRequest(None, 60_000))
    assert (first.error_code, first.producer_epoch) == (0, 0)
    again = raw.ask(InitProducerIdRequest(None, 60_000, first.producer_id, first.producer_epoch))
    assert (again.error_code, again.producer_epoch) == (0, 0)
    assert again.producer_id > first.producer_id


def test_acks_0_is_not_answered_and_an_error_closes(broker: RunningBroker, raw: Raw, topic: str) -> None:
    raw.create(topic)
    with Raw(broker.bootstrap) as careless:
        frame = careless.frame(produce_request(topic, batch(b"fine"), acks=0), 9)
        careless._sent.clear()
        careless.socket.sendall(frame)
        assert careless.ask(ApiVersionsRequest("raw", "1")).error_code == 0
        careless.send(produce_request(f"{topic}-none", batch(b"lost"), acks=0), 9)
        with pytest.raises(Closed):
            careless.receive()
    assert raw.fetch(topic, min_bytes=1, max_wait_ms=5000).high_watermark == 1


def test_acks_other_than_0_1_all_are_refused(raw: Raw, topic: str) -> None:
    raw.create(topic)
    assert raw.produce(topic, batch(b"x"), acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_a_batch_in_every_version_of_produce_and_fetch(raw: Raw, topic: str) -> None:
    topic_id = raw.create(topic)
    for count, version in enumerate(range(3, SERVED[BROKER][0].max_version + 1)):
        request = produce_request(topic, batch(b"%d" % version))
        request.topic_data[0].topic_id = topic_id
        response = raw.ask(request, version).responses[0].partition_responses[0]
        assert (response.error_code, response.base_offset) == (0, count), version
    for version in range(4, SERVED[BROKER][1].max_version + 1):
        found = raw.fetch(topic, topic_id=topic_id, version=version)
        assert found.error_code == 0, version
        assert read_header(bytes(found.records)).base_offset == 0


def test_a_clock_of_records_may_not_run_ahead(raw: Raw, topic: str) -> None:
    raw.create(topic, message_timestamp_after_max_ms="1000")
    later = int(time.time() * 1000) + 60_000
    assert raw.produce(topic, batch(b"x", timestamp=later)).error_code == ErrorCode.INVALID_TIMESTAMP
