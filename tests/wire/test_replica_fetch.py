"""Messages between followers and leaders, written and read by hand: the same on the wire as by the codec."""

import random
import uuid

import pytest

from odradek.errors import ProtocolError
from odradek.wire.codec import read_message
from odradek.wire.fetch_request import read_fetch_request
from odradek.wire.fetch_response import Divergence, FetchedPartition, FetchedTopic, encode_fetch_response
from odradek.wire.frame import SIZE, encode_request, encode_response, read_request_header
from odradek.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
)
from odradek.wire.replica_fetch import (
    API_KEY,
    NOT_DIVERGING,
    VERSION,
    Key,
    Position,
    ReplicaFetches,
    read_replica_response,
)

TOPICS = [uuid.UUID(int=number) for number in range(1, 201)]


def fetches() -> ReplicaFetches:
    limits = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 10 << 20, "partition_max_bytes": 1 << 20}
    return ReplicaFetches("broker-2", 2, 77, **limits)


def by_the_codec(changed: list[tuple[Key, Position]], forgotten: list[Key]) -> bytes:
    topics: dict[bytes, FetchTopic] = {}
    for (topic_id, index), at in changed:
        topic = topics.setdefault(topic_id, FetchTopic(uuid.UUID(bytes=topic_id)))
        place = index, at.leader_epoch, at.offset, at.last_fetched_epoch, at.log_start_offset
        topic.partitions.append(FetchPartition(*place, 1 << 20))
    left: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in sorted(forgotten):
        left.setdefault(topic_id, ForgottenTopic(uuid.UUID(bytes=topic_id))).partitions.append(index)
    request = FetchRequest(
        replica_state=ReplicaState(2, 77),
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=10 << 20,
        session_id=123,
        session_epoch=9,
        topics=list(topics.values()),
        forgotten_topics_data=list(left.values()),
    )
    return bytes(encode_request(request, API_KEY, FetchRequest.MAX_VERSION, 0, "broker-2"))


@pytest.mark.parametrize("partitions", [0, 1, 2, 3, 500])
@pytest.mark.parametrize("forgotten", [0, 1, 300])
def test_requests_are_those_of_the_codec(partitions: int, forgotten: int) -> None:
    rng = random.Random(partitions)
    keys = [(topic.bytes, index) for topic in TOPICS for index in range(4)]
    changed = [
        (
            key,
            Position(rng.randrange(9), rng.randrange(1 << 60), rng.randrange(-1, 9), rng.randrange(1 << 60)),
        )
        for key in rng.sample(keys, partitions)
    ]
    left = rng.sample(keys, forgotten)
    frame = fetches().encode(123, 9, changed, left)
    assert frame == by_the_codec(changed, left)
    assert read_request_header(memoryview(frame)[SIZE.size :]).version == VERSION == FetchRequest.MAX_VERSION


def data(index: int, records: bytes | None = None, **fields: object) -> PartitionData:
    return PartitionData(index, 0, 10, 9, 3, aborted_transactions=None, records=records, **fields)  # type: ignore[arg-type]


def response(*topics: FetchableTopicResponse, **fields: object) -> FetchResponse:
    return FetchResponse(error_code=0, session_id=55, responses=list(topics), **fields)  # type: ignore[arg-type]


RESPONSES = {
    "nothing": response(),
    "an error": FetchResponse(error_code=71),
    "one": response(FetchableTopicResponse(TOPICS[0], "", [data(7, b"records")])),
    "a new high watermark": response(FetchableTopicResponse(TOPICS[0], "", [data(7)])),
    "much": response(FetchableTopicResponse(TOPICS[0], "", [data(7, bytes(100_000))])),
    "a partition's error": response(FetchableTopicResponse(TOPICS[0], "", [PartitionData(7, 6)])),
    "divergence": response(
        FetchableTopicResponse(TOPICS[0], "", [data(7, diverging_epoch=EpochEndOffset(4, 8))])
    ),
    "a new leader": response(
        FetchableTopicResponse(TOPICS[0], "", [data(7, current_leader=LeaderIdAndEpoch(4, 8))]),
        node_endpoints=[NodeEndpoint(4, "host", 9092, "rack")],
    ),
    "aborted transactions": response(
        FetchableTopicResponse(
            TOPICS[0], "", [PartitionData(7, aborted_transactions=[AbortedTransaction(1, 2)], records=b"x")]
        )
    ),
    "many": response(
        *(
            FetchableTopicResponse(topic, "", [data(index, bytes(index)) for index in range(200)])
            for topic in TOPICS
        )
    ),
}


@pytest.mark.parametrize("name", RESPONSES)
def test_responses_are_read_as_by_the_codec(name: str) -> None:
    expected = RESPONSES[name]
    frame = memoryview(encode_response(expected, API_KEY, VERSION, 1))[SIZE.size :]
    found = read_replica_response(frame)
    assert (found.error_code, found.session_id) == (expected.error_code, expected.session_id)
    partitions = [(topic.topic_id.bytes, one) for topic in expected.responses for one in topic.partitions]
    assert len(found.partitions) == len(partitions)
    for ours, (topic_id, one) in zip(found.partitions, partitions, strict=True):
        assert ours.key == (topic_id, one.partition_index)
        assert ours[1:4] == (one.error_code, one.high_watermark, one.log_start_offset)
        assert ours.diverging == (one.diverging_epoch.epoch, one.diverging_epoch.end_offset)
        assert bytes(ours.records or b"") == bytes(one.records or b"")


def test_what_the_leader_writes_is_read() -> None:
    topic = FetchedTopic("", TOPICS[0], [FetchedPartition(1, 0, 8, 8, 2, divergence=Divergence(3, 4))])
    frame = b"".join(encode_fetch_response(VERSION, 0, 0, 5, [topic]))
    (found,) = read_replica_response(memoryview(frame)[SIZE.size :]).partitions
    assert found == ((TOPICS[0].bytes, 1), 0, 8, 2, (3, 4), None)
    topic.partitions[0] = FetchedPartition(1, 0, 8, 8, 2)
    frame = b"".join(encode_fetch_response(VERSION, 0, 0, 5, [topic]))
    (found,) = read_replica_response(memoryview(frame)[SIZE.size :]).partitions
    assert found == ((TOPICS[0].bytes, 1), 0, 8, 2, NOT_DIVERGING, None)


@pytest.mark.parametrize("name", ["one", "divergence", "aborted transactions", "a new leader"])
def test_a_response_that_is_cut_short_is_refused(name: str) -> None:
    frame = memoryview(encode_response(RESPONSES[name], API_KEY, VERSION, 1))[SIZE.size :]
    message, end = read_message(FetchResponse, VERSION, frame, 5)
    assert message == RESPONSES[name] and end == len(frame)
    last = len(frame) - (100 if name == "a new leader" else 3)  # what follows is not looked at
    for length in range(max(last, 0)):
        with pytest.raises(ProtocolError):
            read_replica_response(frame[:length])


@pytest.mark.parametrize("partitions", [0, 1, 2])
def test_the_leader_reads_what_the_codec_would(partitions: int) -> None:
    changed = [((TOPICS[index].bytes, index), Position(5, 1 << 40, 4, 7)) for index in range(partitions)]
    frame = memoryview(fetches().encode(123, 9, changed, []))[SIZE.size :]
    body = read_request_header(frame).body
    expected, _ = read_message(FetchRequest, VERSION, frame, body)
    assert read_fetch_request(frame, body) == expected


def test_a_fetch_of_the_same_size_that_says_something_else_is_read_by_the_codec() -> None:
    """Every byte that is expected to be a constant counts."""
    frame = fetches().encode(123, 9, [((TOPICS[0].bytes, 3), Position(5, 8, 4, 7))], [])
    body = read_request_header(memoryview(frame)[SIZE.size :]).body + SIZE.size
    for place in range(body, len(frame)):
        changed = bytearray(frame)
        changed[place] ^= 1
        try:
            expected, _ = read_message(FetchRequest, VERSION, memoryview(changed), body)
        except ProtocolError:
            with pytest.raises(ProtocolError):
                read_fetch_request(memoryview(changed), body)
        else:
            assert read_fetch_request(memoryview(changed), body) == expected
