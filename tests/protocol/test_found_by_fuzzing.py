"""Requests that once broke something, found by `tools/fuzz` or by reading."""

import pytest

from odradek.errors import ErrorCode
from odradek.wire.messages.describe_topic_partitions import (
    CursorInRequest,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.protocol.raw import Raw, batch


@pytest.mark.parametrize("version", [10, 11])
def test_topic_ids_before_metadata_knew_them(raw: Raw, topic: str, version: int) -> None:
    by_id = MetadataRequestTopic(topic_id=raw.create(topic), name=topic)
    (response,) = raw.ask(MetadataRequest([by_id], allow_auto_topic_creation=False), version).topics
    assert (response.error_code, response.name) == (ErrorCode.INVALID_REQUEST, topic)
    nameless = MetadataRequestTopic(topic_id=by_id.topic_id, name=None)
    (response,) = raw.ask(MetadataRequest([nameless], allow_auto_topic_creation=False), version).topics
    assert (response.error_code, response.name) == (ErrorCode.INVALID_REQUEST, "")


def test_a_cursor_before_the_first_partition(raw: Raw, topic: str) -> None:
    raw.create(topic)
    request = DescribeTopicPartitionsRequest([TopicRequest(topic)], cursor=CursorInRequest(topic, -1))
    (response,) = raw.ask(request).topics
    assert (response.error_code, response.name) == (ErrorCode.INVALID_REQUEST, topic)


@pytest.mark.parametrize("epoch", [-(2**31), -2, -1, 5, 2**31 - 1])
def test_epochs_that_never_were(raw: Raw, topic: str, epoch: int) -> None:
    raw.create(topic)
    asked = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic, [asked])])
    found = raw.ask(request, 3).topics[0].partitions[0]
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, -1, -1)
    raw.produce(topic, batch(b"x"))
    assert raw.ask(request, 3).topics[0].partitions[0].error_code == 0


def test_an_offset_kept_forever_does_not_end_its_coordinator(raw: Raw, topic: str) -> None:
    """The time it expires at did not fit its record, and no request of any group was answered after it."""
    raw.create(topic)
    raw.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["kept"]))
    partition = OffsetCommitRequestPartition(0, 1, -1, "")
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    for retention_ms in (2**63 - 1, -1):
        commit = OffsetCommitRequest("kept", retention_time_ms=retention_ms, topics=topics)
        assert raw.ask(commit, 4).topics[0].partitions[0].error_code == 0
