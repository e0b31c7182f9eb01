"""The codec and hostile input: a wrong length, count or tag is a ProtocolError, never more work than bytes."""

import random
from dataclasses import field, replace
from typing import Annotated

import pytest

from odradek.errors import ProtocolError
from odradek.wire.codec import (
    Wire,
    encode,
    read_in_steps,
    read_message,
    read_uvarint,
    wire_struct,
    write_in_steps,
    write_uvarint,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.reading import MAX_TAGGED_FIELDS


def commit_request() -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(1, 5, 2, "metadata")]
    return OffsetCommitRequest(
        "group", 1, "member", None, -1, [OffsetCommitRequestTopic(name="t", partitions=partitions)]
    )


@pytest.mark.parametrize("version", range(2, 11))
def test_cut_at_every_byte(version: int) -> None:
    whole = bytes(encode(commit_request(), version))
    for end in range(len(whole)):
        with pytest.raises(ProtocolError):
            read_message(OffsetCommitRequest, version, whole[:end])


@pytest.mark.parametrize("version", range(2, 11))
def test_changed_bytes_are_read_or_refused(version: int) -> None:
    rng = random.Random(version)
    whole = encode(commit_request(), version)
    for _ in range(2000):
        changed = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        try:
            read_message(OffsetCommitRequest, version, changed)
        except ProtocolError:
            continue


def test_counts_beyond_the_bytes_that_remain() -> None:
    with pytest.raises(ProtocolError, match="more elements than bytes"):
        read_message(MetadataRequest, 1, b"\x7f\xff\xff\xff")
    with pytest.raises(ProtocolError, match="more elements than bytes"):
        read_message(MetadataRequest, 12, b"\xff\xff\xff\xff\x0f")


def test_unknown_tagged_fields_are_skipped_anywhere() -> None:
    message = MetadataRequest([MetadataRequestTopic(name="t")])
    plain = bytes(encode(message, 12))
    topic_end = plain.index(b"t") + 1
    assert plain[topic_end] == 0
    tagged = plain[:topic_end] + bytes((1, 99, 2)) + b"xy" + plain[topic_end + 1 :]
    assert read_message(MetadataRequest, 12, tagged) == (message, len(tagged))


def test_too_many_tagged_fields_are_refused() -> None:
    out = bytearray(encode(MetadataRequest([]), 12)[:-1])
    write_uvarint(out, MAX_TAGGED_FIELDS + 1)
    out += bytes(2 * (MAX_TAGGED_FIELDS + 1))
    with pytest.raises(ProtocolError, match="too many tagged fields"):
        read_message(MetadataRequest, 12, out)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**31 - 1, 2**32 - 1])
def test_varints(value: int) -> None:
    out = bytearray()
    write_uvarint(out, value)
    assert read_uvarint(out, 0) == (value, len(out))


@pytest.mark.parametrize("encoded", [b"\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x7f"])
def test_varints_beyond_32_bits(encoded: bytes) -> None:
    with pytest.raises(ValueError, match="varint"):
        read_uvarint(encoded, 0)


def test_records_are_views_of_what_was_read() -> None:
    from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

    message = ProduceRequest(
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(0, b"abc")])]
    )
    buffer = encode(message, 9)
    found, _ = read_message(ProduceRequest, 9, memoryview(buffer))
    records = found.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    buffer[buffer.index(b"abc")] = ord("X")
    assert bytes(records) == b"Xbc"


# Steps


def large_commit(topics: int, partitions: int) -> OffsetCommitRequest:
    asked = [OffsetCommitRequestPartition(index, 5) for index in range(partitions)]
    return OffsetCommitRequest(
        "group", topics=[OffsetCommitRequestTopic(name="t", partitions=asked)] * topics
    )


@pytest.mark.parametrize(("topics", "partitions"), [(1, 100_000), (100, 1000), (1000, 10), (100_000, 1)])
def test_no_step_of_reading_or_writing_is_long(topics: int, partitions: int) -> None:
    """Reading stops at least every 64 elements, and so does writing: seen in the bytes that a step takes."""
    message = large_commit(topics, partitions)
    out = bytearray()
    longest = size = 0
    for _ in write_in_steps(message, 8, out):
        longest, size = max(longest, len(out) - size), len(out)
    assert out == encode(message, 8)
    assert longest < 64 * 30
    steps = sum(1 for _ in read_in_steps(OffsetCommitRequest, 8, bytes(out), 0, 2_000_000))
    assert steps >= topics * partitions // 64


def test_a_message_of_more_elements_than_are_allowed_is_refused_before_they_are_read() -> None:
    encoded = bytes(encode(large_commit(1, 1001), 8))
    steps = read_in_steps(OffsetCommitRequest, 8, encoded, 0, 1000)
    with pytest.raises(ProtocolError, match="too many array elements"):
        list(steps)


@wire_struct
class Parent:
    first: Annotated[int, Wire("int32")]
    second: Annotated[str, Wire("string")] = "two"


@wire_struct
class Child(Parent):
    third: Annotated[list[int], Wire("int32[]")] = field(default_factory=list)


def test_a_struct_is_made_as_a_dataclass_is() -> None:
    assert (Child(1).first, Child(1).second, Child(1).third) == (1, "two", [])
    assert Child(1, third=[3]) == Child(1, "two", [3]) == replace(Child(9, "two", [3]), first=1)
    assert Child(1).third is not Child(1).third, "each has its own list"
    assert (Parent(1, "b").first, Parent(1, "b").second) == (1, "b")
    for make in (
        Child,
        lambda: Child(1, "two", [], 4),
        lambda: Child(1, fourth=4),
        lambda: Child(1, first=1),
    ):
        with pytest.raises(TypeError):
            make()
