"""Record batches to Arrow: the same records that the plain decoder finds, and no belief in damaged bytes."""

import random

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from odradek.client.fetching import Batch, Chunk
from odradek.errors import KafkaError
from odradek.model import TopicPartition
from odradek.records.batch import HEADER_SIZE
from odradek.records.compression import Codec
from odradek.records.record import Record, TimestampType, build_batch, header_of, pack_batch
from odradek.spark import decoding
from odradek.spark.decoding import Decoder
from odradek.spark.schema import source_schema

PARTITION = TopicPartition("events", 3)


def some_records(seed: int, count: int, first: int = 0) -> list[Record]:
    rng = random.Random(seed)

    def blob() -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(rng.choice([0, 1, 3, 63, 64, 200, 9000]))

    offset, records = first, []
    for _ in range(count):
        headers = tuple((b"h%d" % rng.randrange(9), blob()) for _ in range(rng.choice([0, 0, 1, 3])))
        records.append(
            Record(offset, 1_700_000_000_000 + rng.randrange(-(10**9), 10**9), blob(), blob(), headers)
        )
        offset += rng.choice([1, 1, 1, 7])
    return records


def chunk_of(*batches: bytes | bytearray) -> Chunk:
    parts = [Batch(header_of(batch), memoryview(batch)) for batch in batches]
    return Chunk(parts, 0)


def decode(chunk: Chunk, start: int = 0, end: int = 2**62, headers: bool = True) -> pa.Table:
    schema = to_arrow_schema(source_schema(headers), timezone="UTC")
    batches = list(Decoder(PARTITION, schema).decode(chunk, start, end))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(schema), "Spark compares it to the letter"
    return pa.Table.from_batches(batches, schema)


def row(record: Record, timestamp_type: int = 0, timestamp: int | None = None) -> dict:
    return {
        "key": record.key,
        "value": record.value,
        "topic": "events",
        "partition": 3,
        "offset": record.offset,
        "timestamp": (record.timestamp if timestamp is None else timestamp) * 1000,
        "timestampType": timestamp_type,
        "headers": [{"key": key.decode(), "value": value} for key, value in record.headers] or None,
    }


def rows_of(table: pa.Table) -> list[dict]:
    index = table.schema.get_field_index("timestamp")
    as_numbers = table.column("timestamp").cast(pa.int64())
    return table.set_column(index, "timestamp", as_numbers).to_pylist()


@pytest.mark.parametrize("codec", list(Codec))
def test_all_columns_of_all_codecs(codec):
    records = some_records(codec, 300)
    table = decode(chunk_of(build_batch(records[:120], codec=codec), build_batch(records[120:], codec=codec)))
    assert rows_of(table) == [row(record) for record in records]


def test_only_the_offsets_asked_for():
    records = some_records(1, 50, first=100)
    table = decode(chunk_of(build_batch(records)), start=110, end=130, headers=False)
    wanted = [record for record in records if 110 <= record.offset < 130]
    assert table.column("offset").to_pylist() == [record.offset for record in wanted]
    assert table.column("value").to_pylist() == [record.value for record in wanted]
    assert "headers" not in table.column_names


def test_a_batch_with_the_brokers_time_has_it_in_every_row():
    records = some_records(2, 20)
    batch = build_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME)
    latest = header_of(batch).max_timestamp
    both = decode(chunk_of(batch, build_batch(some_records(3, 5, first=500))))
    assert rows_of(both)[:20] == [row(record, 1, latest) for record in records]
    assert both.column("timestampType").to_pylist() == [1] * 20 + [0] * 5


def test_large_chunks_become_several_arrow_batches(monkeypatch):
    monkeypatch.setattr(decoding, "MAX_ROWS_BYTES", 10_000)
    parts = [build_batch(some_records(seed, 30, first=1000 * seed)) for seed in range(5)]
    schema = to_arrow_schema(source_schema(True), timezone="UTC")
    batches = list(Decoder(PARTITION, schema).decode(chunk_of(*parts), 0, 2**62))
    assert len(batches) == 5
    assert sum(batch.num_rows for batch in batches) == 150


def test_a_value_of_a_megabyte():
    value = random.Random(0).randbytes(1_000_000)
    table = decode(chunk_of(build_batch([Record(0, 0, b"k", value)])))
    assert table.column("value").to_pylist() == [value]


@pytest.mark.parametrize("seed", range(300))
def test_damaged_records_are_refused_or_read_but_never_believed(seed):
    """Every byte behind the header may be anything: the outcome is an error or rows, and all stays in bounds."""
    rng = random.Random(seed)
    batch = bytearray(build_batch(some_records(seed, 20)))
    for _ in range(rng.choice([1, 1, 2, 10])):
        batch[rng.randrange(HEADER_SIZE, len(batch))] = rng.randrange(256)
    try:
        decode(chunk_of(batch))
    except (KafkaError, pa.ArrowInvalid) as error:  # a header key that is no UTF-8 is found by validate()
        assert isinstance(error, pa.ArrowInvalid) or "events-3: the records of the batch" in str(error)


@pytest.mark.parametrize("change", [{"record_count": 10**9}, {"record_count": 21}, {"record_count": 19}])
def test_a_count_that_is_not_true_is_refused(change):
    batch = build_batch(some_records(0, 20))
    lying = pack_batch(header_of(batch)._replace(**change), batch[HEADER_SIZE:])
    with pytest.raises(KafkaError, match="events-3: the records of the batch at offset 0 are damaged"):
        decode(chunk_of(lying))


def test_a_time_beyond_all_microseconds_is_the_last_that_there_is():
    """As of a producer that gives nanoseconds."""
    far = 1_700_000_000_000_000_000
    records = [Record(0, far, None, b""), Record(1, far + 1, None, b""), Record(2, 5, None, b"")]
    table = decode(chunk_of(build_batch(records)))
    last = (2**63 - 1) // 1000 * 1000
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [last, last, 5000]
