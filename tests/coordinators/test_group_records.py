"""Keys and values of `__consumer_offsets` against the bytes that Apache Kafka 4.3.1's own classes write."""

from typing import Any
from uuid import UUID

import pytest

from odradek.coordinators import records
from odradek.coordinators.routing import java_hash, partition_of
from odradek.errors import ProtocolError

TOPIC_ID = UUID(int=(1 << 64) + 2)

KAFKA_WROTE: list[tuple[Any, Any, str, str]] = [
    (
        records.OffsetCommitKey("g", "t", 3),
        records.OffsetCommitValue(5, 7, "m", 99, topic_id=TOPIC_ID),
        "000100016700017400000003",
        "0004000000000000000500000007026d000000000000006301001000000000000000010000000000000002",
    ),
    (
        records.OffsetCommitKey("g", "t", 3),
        records.OffsetCommitValue(5, 7, "m", 99),
        "000100016700017400000003",
        "0004000000000000000500000007026d000000000000006300",
    ),
    (
        records.OffsetCommitKey("g", "t", 3),
        records.OffsetCommitValue(5, -1, "m", 99, expire_timestamp=199),
        "000100016700017400000003",
        "0001000000000000000500016d000000000000006300000000000000c7",
    ),
    (
        records.GroupMetadataKey("g"),
        records.GroupMetadataValue(
            "consumer",
            4,
            "range",
            "a",
            77,
            [records.MemberMetadata("a", "i", "c", "/h", 8, 9, b"\x01", b"\x02")],
        ),
        "0002000167",
        "00030008636f6e73756d657200000004000572616e6765000161000000000000004d00000001"
        "00016100016900016300022f68000000080000000900000001010000000102",
    ),
    (
        records.ConsumerGroupMetadataKey("g"),
        records.ConsumerGroupMetadataValue(6, 5),
        "0003000167",
        "0000000000060100080000000000000005",
    ),
    (
        records.ConsumerGroupMemberMetadataKey("g", "m"),
        records.ConsumerGroupMemberMetadataValue(
            None,
            "r",
            "c",
            "h",
            ["t"],
            None,
            4,
            "uniform",
            records.ClassicMemberMetadata(5, [records.ClassicProtocol("range", b"\x09")]),
        ),
        "000500016700016d",
        "000000027202630268020274000000000408756e69666f726d0100100100000005020672616e676502090000",
    ),
    (
        records.ConsumerGroupTargetAssignmentMetadataKey("g"),
        records.ConsumerGroupTargetAssignmentMetadataValue(3, 8),
        "0006000167",
        "0000000000030100080000000000000008",
    ),
    (
        records.ConsumerGroupTargetAssignmentMemberKey("g", "m"),
        records.ConsumerGroupTargetAssignmentMemberValue([records.TargetPartitions(TOPIC_ID, [1, 2])]),
        "000700016700016d",
        "000002000000000000000100000000000000020300000001000000020000",
    ),
    (
        records.ConsumerGroupCurrentMemberAssignmentKey("g", "m"),
        records.ConsumerGroupCurrentMemberAssignmentValue(
            3,
            2,
            1,
            [records.AssignedPartitions(TOPIC_ID, [1], [3])],
            [records.AssignedPartitions(TOPIC_ID, [2])],
        ),
        "000800016700016d",
        "0000000000030000000201020000000000000001000000000000000202000000010100050200000003"
        "020000000000000001000000000000000202000000020000",
    ),
    (
        records.ConsumerGroupRegularExpressionKey("g", "t.*"),
        records.ConsumerGroupRegularExpressionValue(["t1"], 2, 3),
        "00100001670003742e2a",
        "0000020374310000000000000002000000000000000300",
    ),
]


@pytest.mark.parametrize(("key", "value", "key_hex", "value_hex"), KAFKA_WROTE)
def test_records_are_written_and_read_as_kafka_does(
    key: Any, value: Any, key_hex: str, value_hex: str
) -> None:
    key_bytes, value_bytes = records.encode(key, value)
    assert value_bytes is not None
    assert (key_bytes.hex(), value_bytes.hex()) == (key_hex, value_hex)
    assert records.decode(key_bytes, value_bytes) == (key, value)


def test_a_tombstone_has_no_value() -> None:
    key_bytes, value_bytes = records.encode(records.GroupMetadataKey("g"), None)
    assert value_bytes is None
    assert records.decode(key_bytes, None) == (records.GroupMetadataKey("g"), None)


def test_a_type_of_key_that_is_not_ours_is_skipped() -> None:
    assert records.decode(bytes.fromhex("000f000167"), b"\0\0") is None


def test_a_value_of_a_version_we_do_not_know_is_an_error() -> None:
    with pytest.raises(ProtocolError):
        records.decode(bytes.fromhex("0002000167"), bytes.fromhex("0005"))


@pytest.mark.parametrize(
    ("group_id", "hash_code"),
    [
        ("readers", 1080410128),
        ("g", 103),
        ("", 0),
        ("group-é", 293427483),
        ("consumer-group-1234567890", -1249451104),
    ],
)
def test_a_group_lives_where_java_would_put_it(group_id: str, hash_code: int) -> None:
    assert java_hash(group_id) == hash_code
    assert partition_of(group_id, 50) == abs(hash_code) % 50


def test_the_hash_without_a_positive_counterpart_is_partition_0() -> None:
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert partition_of("polygenelubricants", 50) == 0
