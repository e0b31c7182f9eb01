"""The hand-written Produce codec against the generated one, in every version."""

import random
import uuid

import pytest

from odradek.errors import ProtocolError
from odradek.model import NO_TOPIC_ID
from odradek.wire import produce
from odradek.wire.codec import encode
from odradek.wire.frame import encode_response
from odradek.wire.messages import produce as generated
from tests.wire.test_fetch_response import HINTS

VERSIONS = range(generated.ProduceRequest.MIN_VERSION, generated.ProduceRequest.MAX_VERSION + 1)
HINTS_SINCE = 10


def random_request(rng: random.Random, version: int) -> generated.ProduceRequest:
    by_id = version >= produce.TOPIC_IDS_SINCE
    return generated.ProduceRequest(
        transactional_id=rng.choice([None, "", "é" * 70]),
        acks=rng.choice([-1, 0, 1]),
        timeout_ms=rng.randrange(2**31),
        topic_data=[
            generated.TopicProduceData(
                uuid.UUID(int=rng.getrandbits(128)) if by_id else NO_TOPIC_ID,
                "" if by_id else "t" * rng.choice([1, 200]),
                [
                    generated.PartitionProduceData(
                        rng.randrange(100), rng.choice([None, b"", rng.randbytes(300)])
                    )
                    for _ in range(rng.choice([0, 1, 3]))
                ],
            )
            for _ in range(rng.choice([0, 1, 3]))
        ],
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_reads_what_the_codec_writes(version: int) -> None:
    rng = random.Random(version)
    for _ in range(50):
        message = random_request(rng, version)
        frame = memoryview(b"header" + encode(message, version))
        found = produce.read_produce_request(frame, 6, version)
        assert found[:3] == (message.transactional_id, message.acks, message.timeout_ms)
        assert [(topic.name, topic.topic_id) for topic in found.topics] == [
            (topic.name, topic.topic_id) for topic in message.topic_data
        ]
        assert [topic.partitions for topic in found.topics] == [
            [(data.index, data.records) for data in topic.partition_data] for topic in message.topic_data
        ]


@pytest.mark.parametrize("version", range(produce.FLEXIBLE, VERSIONS.stop))
def test_unknown_tagged_fields_are_skipped(version: int) -> None:
    plain = encode(generated.ProduceRequest(acks=1, topic_data=[]), version)
    assert plain[-1] == 0
    tagged = plain[:-1] + bytes((2, 7, 3)) + b"abc" + bytes((200, 1, 0))
    assert produce.read_produce_request(memoryview(tagged), 0, version).acks == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_cut_at_every_byte(version: int) -> None:
    rng = random.Random(version)
    message = random_request(rng, version)
    message.topic_data = message.topic_data or [generated.TopicProduceData(name="t")]
    whole = bytes(encode(message, version))
    for end in range(len(whole)):
        with pytest.raises(ProtocolError):
            produce.read_produce_request(memoryview(whole[:end]), 0, version)


def test_counts_beyond_the_frame_are_refused_before_anything_is_allocated() -> None:
    start = encode(generated.ProduceRequest(acks=1, topic_data=[]), 3)[:-4]
    with pytest.raises(ProtocolError, match="more elements than bytes"):
        produce.read_produce_request(memoryview(start + (2**31 - 1).to_bytes(4, "big")), 0, 3)


@pytest.mark.parametrize("version", VERSIONS)
def test_writes_what_the_codec_writes(version: int) -> None:
    rng = random.Random(version)
    for _ in range(50):
        topics, expected, hints = [], [], []
        for _ in range(rng.choice([0, 1, 3, 200])):
            topic_id = uuid.UUID(int=rng.getrandbits(128))
            produced, responses = [], []
            for _ in range(rng.choice([0, 1, 2])):
                numbers = [rng.randrange(100) for _ in range(5)]
                numbers[1] = rng.choice([0, 87])
                reason = rng.choice([None, "", "why" * 50]) if numbers[1] else None
                records = rng.choice([[], [(3, "bad"), (4, "worse")]]) if numbers[1] else []
                produced.append(produce.ProducedPartition(*numbers, reason, records))
                errors = [generated.BatchIndexAndErrorMessage(*error) for error in records]
                responses.append(generated.PartitionProduceResponse(*numbers, errors, reason))
                if numbers[1] and version >= HINTS_SINCE and (hint := rng.choice([None, *HINTS])):
                    produced[-1].leader_hint = hint
                    hints.append(hint)
                    responses[-1].current_leader = generated.LeaderIdAndEpoch(*hint[:2])
            topics.append(produce.ProducedTopic("topic", topic_id, produced))
            expected.append(generated.TopicProduceResponse(topic_id, "topic", responses))
        addresses = dict.fromkeys(hint.address for hint in hints if hint.address is not None)
        response = generated.ProduceResponse(
            expected, node_endpoints=[generated.NodeEndpoint(*address) for address in addresses]
        )
        assert produce.encode_produce_response(version, 17, topics) == encode_response(
            response, 0, version, 17
        )


# --- requests like the last one ---


def one_batch_request(version: int, records: bytes, **changes: object) -> generated.ProduceRequest:
    by_id = version >= produce.TOPIC_IDS_SINCE
    values: dict[str, object] = {"acks": -1, "index": 3, "name": "topic", **changes}
    data = generated.PartitionProduceData(values["index"], records)
    topic_id = uuid.UUID(int=hash(values["name"]) % 2**64) if by_id else NO_TOPIC_ID
    topic = generated.TopicProduceData(topic_id, "" if by_id else values["name"], [data])
    return generated.ProduceRequest(None, values["acks"], 1000, [topic])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_like_the_last_is_read_as_any_other(version: int) -> None:
    rng = random.Random(version)
    reader = produce.ProduceReader()
    for _ in range(300):
        changes = rng.choice([{}, {}, {}, {"acks": 1}, {"index": 4}, {"name": "other"}])
        message: generated.ProduceRequest = one_batch_request(
            version, rng.randbytes(rng.choice([0, 1, 60, 126, 127, 128, 16_500])), **changes
        )
        if rng.random() < 0.2:
            message = random_request(rng, version)
        frame = memoryview(b"header" + encode(message, version) + rng.choice([b"", b"", b"\0", b"more"]))
        assert reader.read(frame, 6, version) == produce.read_produce_request(frame, 6, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_one_like_the_last_that_is_cut_is_refused(version: int) -> None:
    reader = produce.ProduceReader()
    whole = bytes(encode(one_batch_request(version, b"r" * 200), version))
    for end in range(len(whole)):
        reader.read(memoryview(whole), 0, version)
        with pytest.raises(ProtocolError):
            reader.read(memoryview(whole[:end]), 0, version)


def test_a_large_batch_is_neither_compared_nor_remembered() -> None:
    reader = produce.ProduceReader()
    for _ in range(2):
        reader.read(memoryview(bytes(encode(one_batch_request(9, b"r" * 1_000_000), 9))), 0, 9)
    assert reader._beginning == b""


def test_a_request_is_remembered_once_another_for_its_topic_has_followed() -> None:
    reader = produce.ProduceReader()
    for name in ("a", "b", "a", "b"):  # to remember those would be in vain
        reader.read(memoryview(bytes(encode(one_batch_request(9, b"r", name=name), 9))), 0, 9)
        assert reader._beginning == b""
    reader.read(memoryview(bytes(encode(one_batch_request(9, b"rest", name="b", index=4), 9))), 0, 9)
    assert reader._beginning and reader._topic.name == "b"


def test_only_what_stands_before_the_batch_is_compared() -> None:
    """A request of another version, with the same bytes, is not like the last."""
    reader = produce.ProduceReader()
    frame = memoryview(bytes(encode(one_batch_request(7, b"r" * 20), 7)))
    for _ in range(2):
        reader.read(frame, 0, 7)
    assert reader.read(frame, 0, 8) == produce.read_produce_request(frame, 0, 8)
    assert reader.read(frame, 0, 7).topics[0].partitions == [(3, b"r" * 20)]
