"""Bytes that are no request: the connection they came on is closed, with a word in the log, and no other notices."""

import random
import struct

import pytest

from odradek.wire.frame import encode_request
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.protocol.raw import Closed, Raw, batch, fetch_request, produce_request, with_size
from tests.support import RunningBroker

MAX_REQUEST_BYTES = 5_000_000  # as the broker of these tests is set
METADATA_V12 = struct.pack(">hhih", 3, 12, 1, -1) + b"\0"
METADATA_V1 = struct.pack(">hhih", 3, 1, 1, -1)
HUGE_UVARINT = b"\xff\xff\xff\xff\x07"


def is_healthy(raw: Raw) -> bool:
    return bool(raw.ask(ApiVersionsRequest("raw", "1")).error_code == 0)


def refuses(broker: RunningBroker, data: bytes) -> bool:
    with Raw(broker.bootstrap) as bad:
        bad.socket.sendall(data)
        return bad.is_closed()


@pytest.mark.parametrize("size", [-1, -(2**31), MAX_REQUEST_BYTES + 1, 2**31 - 1])
def test_sizes_that_no_frame_has(quiet_broker: RunningBroker, size: int) -> None:
    with Raw(quiet_broker.bootstrap) as raw:
        assert refuses(quiet_broker, struct.pack(">i", size))
        assert f"a frame of {size} bytes" in quiet_broker.log
        assert is_healthy(raw)


@pytest.mark.parametrize(
    "body",
    {
        "empty": b"",
        "no header": b"\0",
        "client id beyond the frame": struct.pack(">hhih", 3, 12, 1, 30_000) + b"abc",
        "client id that is no text": struct.pack(">hhih", 3, 12, 1, 2) + b"\xff\xfe\0\0\0",
        "header tags beyond the frame": struct.pack(">hhih", 3, 12, 1, -1) + HUGE_UVARINT,
        "a header tag beyond the frame": struct.pack(">hhih", 3, 12, 1, -1) + b"\x01\0" + HUGE_UVARINT,
        "a count beyond the frame": METADATA_V12 + HUGE_UVARINT,
        "a count beyond the frame, old style": METADATA_V1 + struct.pack(">i", 2**31 - 1),
        "a string beyond the frame": METADATA_V1 + struct.pack(">ih", 1, 20_000) + b"abc",
        "tags beyond the frame": METADATA_V12 + b"\x01\0\0" + HUGE_UVARINT,
        "a tag beyond the frame": METADATA_V12 + b"\x01\0\0" + b"\x01\x09" + HUGE_UVARINT,
        "a varint without an end": METADATA_V12 + b"\xff" * 20,
    }.items(),
    ids=lambda item: item[0],
)
def test_lengths_and_counts_that_lie(broker: RunningBroker, raw: Raw, body: tuple[str, bytes]) -> None:
    assert refuses(broker, with_size(body[1]))
    assert is_healthy(raw)


@pytest.mark.parametrize("version", [1, 12])
def test_a_request_cut_at_every_byte(broker: RunningBroker, raw: Raw, version: int) -> None:
    """A frame whose size fits what is left of its request: closed, or answered, but never left hanging."""
    request = MetadataRequest([MetadataRequestTopic(name="cut")], allow_auto_topic_creation=False)
    whole = encode_request(request, 3, version, 1, "raw")[4:]
    for length in range(len(whole)):
        with Raw(broker.bootstrap) as bad:
            bad.socket.sendall(with_size(bytes(whole[:length])))
            try:
                bad.receive_frame()
            except Closed:
                continue
    assert is_healthy(raw)


def test_a_request_that_arrives_byte_by_byte(broker: RunningBroker) -> None:
    with Raw(broker.bootstrap) as slow:
        for byte in slow.frame(ApiVersionsRequest("raw", "1")):
            slow.socket.sendall(bytes([byte]))
        assert slow.receive().error_code == 0


@pytest.mark.parametrize("seed", range(5))
def test_many_requests_split_anywhere(broker: RunningBroker, raw: Raw, topic: str, seed: int) -> None:
    """Frames small and large, cut where the network likes: all are answered, in order."""
    rng = random.Random(seed)
    raw.create(topic)
    with Raw(broker.bootstrap) as sender:
        sizes = [rng.choice([10, 1000, 100_000, 400_000]) for _ in range(12)]
        stream = b"".join(
            sender.frame(produce_request(topic, batch(rng.randbytes(size)), acks=1), 9) for size in sizes
        )
        position = 0
        while position < len(stream):
            length = rng.choice([1, 3, 50, 5000, 70_000, 300_000])
            sender.socket.sendall(stream[position : position + length])
            position += length
        responses = [sender.receive().responses[0].partition_responses[0] for _ in sizes]
    assert [(response.error_code, response.base_offset) for response in responses] == [
        (0, offset) for offset in range(len(sizes))
    ]


def test_a_request_of_exactly_the_largest_size(broker: RunningBroker, raw: Raw, topic: str) -> None:
    raw.create(topic, max_message_bytes="10000000")
    overhead = len(raw.frame(produce_request(topic, batch(b"x" * 4_000_000)), 9)) - 4_000_000
    raw._sent.clear()
    fits = batch(b"x" * (MAX_REQUEST_BYTES + 4 - overhead))
    assert raw.produce(topic, fits).error_code == 0
    with Raw(broker.bootstrap) as bad:
        too_much = batch(b"x" * (MAX_REQUEST_BYTES + 5 - overhead))
        bad.socket.sendall(bad.frame(produce_request(topic, too_much), 9)[:1000])
        assert bad.is_closed()


def test_a_million_tagged_fields_cost_nothing(broker: RunningBroker, raw: Raw) -> None:
    tags = b"".join(bytes([0x80 | number & 0x7F, 1 + (number >> 7 & 0x3F), 0]) for number in range(1_000_000))
    body = METADATA_V12 + b"\x01\0\0" + b"\xc0\x84\x3d" + tags
    assert refuses(broker, with_size(body))
    assert is_healthy(raw)


def test_a_fetch_that_claims_to_be_a_replica(raw: Raw, topic: str) -> None:
    """It is no way to read what is not committed, nor to move the high watermark."""
    raw.create(topic)
    raw.produce(topic, batch(b"x"))
    request = fetch_request(topic)
    request.replica_id = 2
    found = raw.ask(request, 12).responses[0].partitions[0]
    assert found.error_code != 0
    assert not found.records


BAD_BATCHES = {
    "nothing": b"",
    "garbage": b"garbage" * 20,
    "two batches": batch(b"a") + batch(b"b"),
    "cut short": batch(b"abc")[:-1],
    "a byte too many": batch(b"abc") + b"\0",
    "flipped": batch(b"abc")[:-1] + b"?",
    "a control batch": batch(b"abc", control=True, producer_id=1, producer_epoch=0, base_sequence=0),
    "magic 1": batch(b"abc")[:16] + b"\x01" + batch(b"abc")[17:],
    "a count that lies": batch(b"abc")[:57] + struct.pack(">i", 1000) + batch(b"abc")[61:],
    "a length that lies": batch(b"abc")[:8] + struct.pack(">i", 2**31 - 1) + batch(b"abc")[12:],
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_a_batch_that_is_none(raw: Raw, topic: str, name: str) -> None:
    raw.create(topic)
    response = raw.produce(topic, BAD_BATCHES[name])
    assert response.error_code in (2, 87)  # CORRUPT_MESSAGE, INVALID_RECORD
    assert raw.produce(topic, batch(b"good")).base_offset == 0


def test_records_that_are_null(raw: Raw, topic: str) -> None:
    raw.create(topic)
    response = raw.ask(produce_request(topic, None), 9).responses[0].partition_responses[0]
    assert response.error_code in (2, 87)
