"""Rows to record batches: read back by the plain decoder, partitioned as Java partitions."""

import random

import numpy as np
import pyarrow as pa
import pytest

from odradek.client.producing import EncodedRecords
from odradek.records.batch import MAGIC, BatchHeader
from odradek.records.record import Record, decode_batch, pack_batch
from odradek.spark.encoding import Encoder
from odradek.spark.encoding_kernel import murmur2
from odradek.spark.options import InvalidColumn

NOW_MS = 1_700_000_000_123

# These are from Apache Kafka's own test of its Utils.murmur2.
JAVA_MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def records_of(encoded: EncodedRecords) -> list[Record]:
    header = BatchHeader(
        0,
        0,
        -1,
        MAGIC,
        0,
        0,
        encoded.row_count - 1,
        encoded.base_timestamp,
        encoded.max_timestamp,
        -1,
        -1,
        -1,
        encoded.row_count,
    )
    return decode_batch(pack_batch(header, encoded.records))


def encode(table: pa.Table, topic: str | None = "t", partitions: int = 4, batch_bytes: int = 1 << 20):
    encoder = Encoder(topic, batch_bytes, lambda name: partitions, random.Random(5))
    return list(encoder.encode(table, NOW_MS))


@pytest.mark.parametrize(("key", "expected"), JAVA_MURMUR2.items())
def test_murmur2_is_javas(key, expected):
    data = np.frombuffer(b"xx" + key, np.uint8)
    assert murmur2(data, 2, len(key)) == expected & 0xFFFFFFFF


def test_every_column_comes_back_in_the_order_it_came():
    rng = random.Random(1)
    rows = []
    for number in range(500):
        key, partition = rng.choice([None, b"", rng.randbytes(rng.randrange(100))]), rng.choice([None, 0, 3])
        is_bound = key is not None or partition is not None
        rows.append(
            {
                "key": key,
                "value": rng.choice([None, b"%d" % number]) if is_bound else b"%d" % number,
                "partition": partition,
                "timestamp": rng.choice([None, 1_600_000_000_000_000 + rng.randrange(10**12)]),
                "headers": rng.choice([None, [], [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]]),
            }
        )
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    schema = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("partition", pa.int32()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("headers", pa.list_(header)),
        ]
    )
    whole = pa.Table.from_pylist(rows, schema)
    table = pa.concat_tables([whole.slice(0, 123), whole.slice(123)])
    found: dict[int, list[Record]] = {}
    for encoded in encode(table, batch_bytes=2_000):
        found.setdefault(encoded.partition.partition, []).extend(records_of(encoded))
    assert sum(len(records) for records in found.values()) == 500
    for partition, records in found.items():
        expected = [
            (
                row["key"],
                row["value"],
                NOW_MS if row["timestamp"] is None else row["timestamp"] // 1000,
                tuple((one["key"].encode(), one["value"]) for one in row["headers"] or []),
            )
            for row in rows
            if _goes_to(row, partition, found)
        ]
        assert [(one.key, one.value, one.timestamp, one.headers) for one in records] == expected


def _goes_to(row: dict, partition: int, found: dict[int, list[Record]]) -> bool:
    """Rows that name their partition or have a key are checked exactly; the rest go where they are found."""
    if row["partition"] is not None:
        return row["partition"] == partition
    if row["key"] is not None:
        hashed = murmur2(np.frombuffer(row["key"], np.uint8), 0, len(row["key"]))
        return (hashed & 0x7FFFFFFF) % 4 == partition
    return any(record.key is None and record.value == row["value"] for record in found[partition])


def test_batches_keep_to_their_size_and_a_large_row_is_alone():
    values = [b"x" * 100] * 50 + [b"y" * 5_000] + [b"x" * 100] * 50
    table = pa.table({"key": [b"k"] * 101, "value": values})
    batches = encode(table, partitions=1, batch_bytes=1_000)
    assert [record.value for batch in batches for record in records_of(batch)] == values
    assert all(len(batch.records) <= 1_000 or batch.row_count == 1 for batch in batches)


def test_rows_without_a_key_stay_together_for_a_batch_and_then_move_on():
    table = pa.table({"value": [b"x" * 100] * 1_000})
    batches = encode(table, partitions=4, batch_bytes=10_000)
    assert {batch.partition.partition for batch in batches} == {0, 1, 2, 3}
    assert min(batch.row_count for batch in batches) > 10


def test_rows_find_their_topics():
    table = pa.table({"topic": ["a", "b", "a"], "key": ["k", "k", "k"], "value": ["1", "2", "3"]})
    found = {batch.partition.topic: records_of(batch) for batch in encode(table, topic=None)}
    assert {topic: [one.value for one in records] for topic, records in found.items()} == {
        "a": [b"1", b"3"],
        "b": [b"2"],
    }


def test_the_topic_option_goes_before_the_column():
    table = pa.table({"topic": ["a", None], "value": ["1", "2"]})
    assert {batch.partition.topic for batch in encode(table, topic="z")} == {"z"}


def test_seconds_as_a_double_are_a_timestamp():
    table = pa.table({"value": ["1"], "timestamp": pa.array([1_700_000_000.25])})
    (batch,) = encode(table)
    assert records_of(batch)[0].timestamp == 1_700_000_000_250


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": ["1"], "topic": pa.array([None], pa.string())}, "column 'topic' has a null"),
        (
            {"value": ["1"], "topic": ["t"], "partition": pa.array([4], pa.int32())},
            "names 4, but topic 't' has 4",
        ),
        ({"value": ["1"], "topic": ["t"], "partition": pa.array([-1], pa.int32())}, "negative"),
        (
            {
                "value": ["1"],
                "topic": ["t"],
                "headers": pa.array(
                    [[{"key": None, "value": b""}]],
                    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
                ),
            },
            "a header without a key",
        ),
    ],
)
def test_rows_that_cannot_be_written_are_refused_by_column(columns, message):
    with pytest.raises(InvalidColumn, match=message):
        encode(pa.table(columns), topic=None)


def test_a_table_uses_the_buffer_of_the_last_one_and_no_more():
    encoder = Encoder("t", 1_000, lambda name: 3, random.Random(5))
    for count in (500, 20, 900):
        table = pa.table({"key": [b"%d" % number for number in range(count)], "value": [b"x" * 40] * count})
        batches = list(encoder.encode(table, NOW_MS))
        keys = [record.key for batch in batches for record in records_of(batch)]
        assert sorted(keys, key=int) == [b"%d" % number for number in range(count)]
