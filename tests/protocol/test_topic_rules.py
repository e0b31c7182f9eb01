"""Settings of topics and brokers that change what Produce does, at creation and later."""

import time
import zlib

import pytest

from odradek.errors import ErrorCode
from odradek.records.batch import read_header
from odradek.records.compression import Codec
from odradek.records.record import decode_batch, patch_crc
from odradek.records.validation import check_batch
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.protocol.raw import Raw, batch

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
DAY_MS = 24 * 3600 * 1000


def now_ms() -> int:
    return int(time.time() * 1000)


def alter(raw: Raw, kind: int, name: str, key: str, value: str | None, operation: int = SET) -> int:
    resource = AlterConfigsResource(kind, name, [AlterableConfig(key, operation, value)])
    code: int = raw.ask(IncrementalAlterConfigsRequest([resource])).responses[0].error_code
    return code


def stored(raw: Raw, topic: str, offset: int = 0) -> bytes:
    """The batch at an offset as it was stored; its CRC is right."""
    records = bytearray(raw.fetch(topic, offset).records)
    size = read_header(records).size
    found = bytes(records[:size])
    copy = bytearray(found)
    copy[:8] = bytes(8)
    check_batch(memoryview(copy))
    return found


def test_log_append_time(raw: Raw, topic: str) -> None:
    raw.create(topic, message_timestamp_type="LogAppendTime")
    before = now_ms()
    response = raw.produce(topic, batch(b"x", b"y", timestamp=1_000))
    assert before <= response.log_append_time_ms <= now_ms()
    header = read_header(stored(raw, topic))
    assert header.max_timestamp == response.log_append_time_ms
    assert header.attributes & 0x08
    assert {record.timestamp for record in decode_batch(stored(raw, topic))} == {response.log_append_time_ms}


def test_create_time_is_kept(raw: Raw, topic: str) -> None:
    raw.create(topic)
    assert raw.produce(topic, batch(b"x", timestamp=1_000)).log_append_time_ms == -1
    assert read_header(stored(raw, topic)).max_timestamp == 1_000


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", list(Codec), ids=lambda codec: codec.name.lower())
def test_compression_type_recompresses(raw: Raw, topic: str, sent: Codec, wanted: str) -> None:
    raw.create(topic, compression_type=wanted)
    values = [b"value %d " % number * 30 for number in range(5)]
    assert raw.produce(topic, batch(*values, key=b"k", codec=sent)).error_code == 0
    found = stored(raw, topic)
    expected = Codec.NONE if wanted == "uncompressed" else Codec[wanted.upper()]
    assert read_header(found).codec == expected
    assert [record.value for record in decode_batch(found)] == values


def test_timestamp_limits(raw: Raw, topic: str) -> None:
    raw.create(topic, message_timestamp_before_max_ms=str(DAY_MS), message_timestamp_after_max_ms="60000")
    old, new = now_ms() - 2 * DAY_MS, now_ms() + 3_600_000
    assert raw.produce(topic, batch(b"x", timestamp=old)).error_code == ErrorCode.INVALID_TIMESTAMP
    assert raw.produce(topic, batch(b"x", timestamp=new)).error_code == ErrorCode.INVALID_TIMESTAMP
    assert raw.produce(topic, batch(b"x", timestamp=now_ms())).error_code == 0


def test_a_change_of_a_topic_takes_effect_at_once(raw: Raw, topic: str) -> None:
    raw.create(topic)
    large = batch(b"x" * 2000)
    assert raw.produce(topic, large).error_code == 0
    assert alter(raw, TOPIC, topic, "max.message.bytes", "1000") == 0
    assert raw.produce(topic, large).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert alter(raw, TOPIC, topic, "max.message.bytes", None, DELETE) == 0
    assert raw.produce(topic, large).error_code == 0
    assert alter(raw, TOPIC, topic, "cleanup.policy", "compact") == 0
    assert raw.produce(topic, batch(b"no key")).error_code == ErrorCode.INVALID_RECORD
    assert alter(raw, TOPIC, topic, "retention.ms", "never") == ErrorCode.INVALID_CONFIG


def test_a_change_of_the_broker_takes_effect_at_once(raw: Raw, topic: str) -> None:
    raw.create(topic)
    large = batch(b"x" * 2000)
    try:
        assert alter(raw, BROKER, "", "message.max.bytes", "1500") == 0
        assert raw.produce(topic, large).error_code == ErrorCode.MESSAGE_TOO_LARGE
        resource = DescribeConfigsResource(TOPIC, topic, ["max.message.bytes"])
        (entry,) = raw.ask(DescribeConfigsRequest([resource], include_synonyms=True)).results[0].configs
        assert entry.value == "1500"
    finally:
        assert alter(raw, BROKER, "", "message.max.bytes", None, DELETE) == 0
    assert raw.produce(topic, large).error_code == 0


@pytest.mark.parametrize("key", ["log.dirs", "node.id", "num.partitions"])
def test_a_setting_that_needs_a_restart_is_refused(raw: Raw, key: str) -> None:
    assert alter(raw, BROKER, "1", key, "9") == ErrorCode.INVALID_REQUEST


def test_a_decompression_bomb_is_refused_where_records_are_read(raw: Raw, topic: str) -> None:
    """A thousand to one: what it would unfold to is never held."""
    raw.create(topic, cleanup_policy="compact", max_message_bytes="5000000")
    bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = b"".join(bomb.compress(bytes(1 << 20)) for _ in range(100)) + bomb.flush()
    start = bytearray(batch(b"x", key=b"k", codec=Codec.GZIP)[:61])
    start[8:12] = (len(start) - 12 + len(packed)).to_bytes(4, "big")
    whole = start + packed
    patch_crc(whole)
    assert raw.produce(topic, bytes(whole)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert raw.produce(topic, batch(b"x", key=b"k")).base_offset == 0


def test_auto_creation_can_be_turned_off(raw: Raw, topic: str) -> None:
    """The client turns it off; the broker's own setting is tested with the command."""
    asked = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    assert raw.ask(asked).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
