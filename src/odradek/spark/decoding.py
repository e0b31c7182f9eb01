"""Chunks of record batches to Arrow record batches with the columns of Spark's Kafka source.

    key, value, topic, partition, offset, timestamp, timestampType, and headers if requested

With a value format, `value` is typed, and a last column, `undecided`, has the bytes that are left to Spark.

The arrays of a chunk are as large as its records could need: keys and values cannot be longer than the
bytes they came in, and pages that are never written take no memory. They are passed to Arrow
without another copy. Topic, partition and timestamp type are the same in every row, so their columns are
made once and sliced.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from odradek.client.fetching import Chunk
from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.records.batch import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader
from odradek.records.compression import Codec, decompress
from odradek.records.walk import Batch
from odradek.spark import decoding_kernel as kernel
from odradek.spark.compiled import read_only
from odradek.spark.options import UNDECIDED

if TYPE_CHECKING:
    from odradek.spark.typed.columns import Values
    from odradek.spark.typed.decoders import ValueDecoder

MAX_UNCOMPRESSED_BYTES = 1 << 30  # of one batch; offsets in a column are int32
MAX_ROWS_BYTES = 1 << 24  # of the records that become one Arrow batch, unless one batch alone has more
MIN_HEADER_BYTES = 2


class Column(NamedTuple):
    """Byte strings one after the other: where each ends, and a bit for each that is not null."""

    data: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int32]
    valid: npt.NDArray[np.uint8]


class DecodedRows:
    """Arrays for the columns, large enough for `count` records of `size` bytes together."""

    def __init__(self, count: int, size: int, with_headers: bool) -> None:
        header_count = size // MIN_HEADER_BYTES if with_headers else 0
        header_rows, header_bytes = (count, size) if with_headers else (0, 0)
        self.with_headers = with_headers
        self.state = np.zeros(kernel.STATE_SIZE, np.int64)
        self.offsets = np.empty(count, np.int64)
        self.timestamps_us = np.empty(count, np.int64)
        self.keys, self.values = _column(count, size), _column(count, size)
        self.header_ends, self.header_valid = _ends(header_rows), _bitmap(header_rows)
        self.header_keys, self.header_values = (_column(header_count, header_bytes) for _ in range(2))

    @property
    def rows(self) -> int:
        return int(self.state[kernel.ROWS])

    def append(self, header: BatchHeader, records: npt.NDArray[np.uint8], start: int, end: int) -> bool:
        """False: the records do not match their batch's header."""
        result = kernel.decode_records(
            records,
            header.record_count,
            header.base_offset,
            header.last_offset_delta,
            header.base_timestamp,
            header.max_timestamp,
            bool(header.attributes & LOG_APPEND_TIME),
            start,
            end,
            self.with_headers,
            self.state,
            self.offsets,
            self.timestamps_us,
            *self.keys,
            *self.values,
            self.header_ends,
            self.header_valid,
            self.header_keys.data,
            self.header_keys.ends,
            *self.header_values,
        )
        return result == kernel.OK

    def column(self, kind: Any, name: str) -> pa.Array:
        state, rows = self.state, self.rows
        if name == "key":
            return _binary(kind, rows, self.keys, state[kernel.KEY_BYTES], state[kernel.NULL_KEYS])
        return _binary(kind, rows, self.values, state[kernel.VALUE_BYTES], state[kernel.NULL_VALUES])

    @property
    def raw_values(self) -> "Values":
        from odradek.spark.typed.columns import Values

        used = self.state[kernel.VALUE_BYTES]
        return Values(self.values.data[:used], self.values.ends[: self.rows + 1], self.values.valid)

    def headers(self, kind: Any) -> pa.Array:
        state, pair = self.state, kind.value_type
        count = int(state[kernel.HEADERS])
        keys = _binary(pair.field(0).type, count, self.header_keys, state[kernel.HEADER_KEY_BYTES], 0)
        size, nulls = state[kernel.HEADER_VALUE_BYTES], state[kernel.NULL_HEADER_VALUES]
        values = _binary(pair.field(1).type, count, self.header_values, size, nulls)
        structs = pa.StructArray.from_arrays([keys, values], fields=list(pair))
        missing = int(state[kernel.ROWS_WITHOUT_HEADERS])
        buffers = [pa.py_buffer(self.header_valid) if missing else None, pa.py_buffer(self.header_ends)]
        return pa.Array.from_buffers(kind, self.rows, buffers, missing, children=[structs])


def _ends(count: int) -> npt.NDArray[np.int32]:
    ends = np.empty(count + 1, np.int32)
    ends[0] = 0
    return ends


def _bitmap(count: int) -> npt.NDArray[np.uint8]:
    return np.zeros((count + 7) // 8, np.uint8)


def _column(count: int, size: int) -> Column:
    return Column(np.empty(size, np.uint8), _ends(count), _bitmap(count))


def _binary(kind: Any, count: int, column: Column, size: int, nulls: int) -> pa.Array:
    bitmap = pa.py_buffer(column.valid) if nulls else None
    buffers = [bitmap, pa.py_buffer(column.ends[: count + 1]), pa.py_buffer(column.data[:size])]
    return pa.Array.from_buffers(kind, count, buffers, int(nulls))


@dataclass(slots=True)
class ConstantColumn:
    """A column that says the same in every row, kept as long as the longest that was asked for."""

    value: Any
    kind: Any
    _longest: Any = field(default=None, init=False)

    def of(self, rows: int) -> pa.Array:
        if self._longest is None or len(self._longest) < rows:
            self._longest = pa.repeat(pa.scalar(self.value, self.kind), rows)
        return self._longest.slice(0, rows)


class Decoder:
    """Converts one partition's chunks to Arrow batches, in exactly the schema that Spark expects."""

    def __init__(
        self, partition: TopicPartition, schema: pa.Schema, typed: "ValueDecoder | None" = None
    ) -> None:
        self._partition, self._schema, self._typed = partition, schema, typed
        self._topics = ConstantColumn(partition.topic, schema.field("topic").type)
        self._partitions = ConstantColumn(partition.partition, schema.field("partition").type)
        kind = schema.field("timestampType").type
        self._timestamp_types = {value: ConstantColumn(value, kind) for value in (0, 1)}

    def decode(self, chunk: Chunk, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The rows of the chunk with offsets in [start, end)."""
        for append_time, batches in _groups(self._unfolded(chunk)):
            count = sum(header.record_count for header, _ in batches)
            size = sum(records.size for _, records in batches)
            rows = DecodedRows(count, size, "headers" in self._schema.names)
            for header, records in batches:
                if not rows.append(header, records, start, end):
                    raise self._corrupt(header)
            if rows.rows:
                yield self._arrow(rows, append_time)

    def _unfolded(self, chunk: Chunk) -> Iterator[tuple[BatchHeader, npt.NDArray[np.uint8]]]:
        for batch in chunk.batches:
            records = _uncompressed(batch)
            if batch.header.record_count * kernel.MIN_RECORD_BYTES > records.size:
                raise self._corrupt(batch.header)
            yield batch.header, records

    def _corrupt(self, header: BatchHeader) -> KafkaError:
        return KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"{self._partition}: the records of the batch at offset {header.base_offset} are damaged",
        )

    def _arrow(self, rows: DecodedRows, append_time: int) -> pa.RecordBatch:
        count, schema = rows.rows, self._schema
        kind, undecided = schema.field("value").type, []
        if self._typed is None:
            value = rows.column(kind, "value")
        else:
            value, left = self._typed.decode(rows.raw_values, kind, schema.field(UNDECIDED).type)
            undecided = [left]
        columns = [
            rows.column(schema.field("key").type, "key"),
            value,
            self._topics.of(count),
            self._partitions.of(count),
            _numbers(schema.field("offset").type, rows.offsets[:count]),
            _numbers(schema.field("timestamp").type, rows.timestamps_us[:count]),
            self._timestamp_types[append_time].of(count),
        ]
        if rows.with_headers:
            columns.append(rows.headers(schema.field("headers").type))
        return pa.RecordBatch.from_arrays(columns + undecided, schema=schema)


class ArchiveDecoder:
    """Converts rows of an archive to the same columns."""

    def __init__(self, topic: str, schema: pa.Schema, typed: "ValueDecoder | None" = None) -> None:
        self._schema, self._typed = schema, typed
        self._topics = ConstantColumn(topic, schema.field("topic").type)

    def decode(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = {"topic": self._topics.of(rows.num_rows)}
        if self._typed is not None:
            from odradek.spark.typed.columns import Values

            values = Values.of(rows.column("value"))
            kinds = (self._schema.field(name).type for name in ("value", UNDECIDED))
            columns["value"], columns[UNDECIDED] = self._typed.decode(values, *kinds)
        found = [
            columns[field.name] if field.name in columns else rows.column(field.name).cast(field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(found, schema=self._schema)


def _numbers(kind: Any, values: npt.NDArray[np.int64]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], 0)


def _uncompressed(batch: Batch) -> npt.NDArray[np.uint8]:
    payload = batch.data[HEADER_SIZE:]
    if batch.header.codec != Codec.NONE:
        payload = memoryview(decompress(batch.header.codec, payload, MAX_UNCOMPRESSED_BYTES))
    return read_only(np.frombuffer(payload, np.uint8))


def _groups(
    batches: Iterator[tuple[BatchHeader, npt.NDArray[np.uint8]]],
) -> Iterator[tuple[int, list[tuple[BatchHeader, npt.NDArray[np.uint8]]]]]:
    """Neighbours of one timestamp type, up to a size, which become one Arrow batch."""
    group: list[tuple[BatchHeader, npt.NDArray[np.uint8]]] = []
    group_type, size = 0, 0
    for header, records in batches:
        append_time = int(bool(header.attributes & LOG_APPEND_TIME))
        if group and (append_time != group_type or size + records.size > MAX_ROWS_BYTES):
            yield group_type, group
            group, size = [], 0
        group_type = append_time
        group.append((header, records))
        size += records.size
    if group:
        yield group_type, group
