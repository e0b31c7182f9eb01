"""Control records, against the schemas of Kafka's where there is one."""

import pytest

from odradek.errors import KafkaError
from odradek.records.control import (
    ControlType,
    build_control_batch,
    build_marker_batch,
    decode_control_key,
    decode_marker,
    encode_control_key,
)
from odradek.records.record import Record, build_batch, decode_batch, header_of


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_batch(commit: bool) -> None:
    batch = build_marker_batch(
        commit=commit,
        coordinator_epoch=9,
        producer_id=77,
        producer_epoch=3,
        timestamp=1000,
        base_offset=50,
        leader_epoch=4,
    )
    header = header_of(batch)
    (record,) = decode_batch(batch)
    assert header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, -1)
    assert (header.base_offset, header.leader_epoch, record.timestamp) == (50, 4, 1000)
    assert decode_control_key(record.key) is (ControlType.COMMIT if commit else ControlType.ABORT)
    assert decode_marker(record.value) == 9
    assert record.key == (b"\0\0\0\1" if commit else b"\0\0\0\0")
    same = build_batch(
        [Record(50, 1000, record.key, b"\0\0\0\0\0\x09")],
        control=True,
        transactional=True,
        producer_id=77,
        producer_epoch=3,
        leader_epoch=4,
    )
    assert batch == same


def test_types_of_the_future_are_skipped() -> None:
    assert decode_control_key(b"\x00\x00\x00\x63") is None
    assert decode_control_key(b"\x00\x07\x00\x01and more") is ControlType.COMMIT


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_keys_that_are_none(key: bytes | None) -> None:
    with pytest.raises(KafkaError):
        decode_control_key(key)


@pytest.mark.parametrize("value", [None, b"", b"\0\0\0\0\0", b"\xff\xff\0\0\0\0"])
def test_marker_values_that_are_none(value: bytes | None) -> None:
    with pytest.raises(KafkaError):
        decode_marker(value)


def test_markers_may_grow() -> None:
    assert decode_marker(b"\0\0\0\0\0\5more") == 5


def test_a_control_batch_of_the_quorum() -> None:
    batch = build_control_batch(
        ControlType.LEADER_CHANGE, b"value", timestamp=5, base_offset=3, leader_epoch=2
    )
    header = header_of(batch)
    assert header.is_control and not header.is_transactional and header.producer_id == -1
    assert decode_batch(batch)[0].key == encode_control_key(ControlType.LEADER_CHANGE)
