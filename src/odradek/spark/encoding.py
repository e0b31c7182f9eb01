"""Arrow tables with the columns of the sink to encoded records, per topic and partition.

The order of rows within a partition is kept. Rows of one partition become batches of about
`batch_bytes`; a row that is larger becomes a separate batch, which the topic accepts or refuses.

All batches of a table are encoded into one buffer, one after the other, and the next table's into the same
one: fresh memory from the system costs more than writing to it.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from odradek.client.producing import EncodedRecords
from odradek.model import TopicPartition
from odradek.spark import encoding_kernel as kernel
from odradek.spark.compiled import read_only
from odradek.spark.options import InvalidColumn

_NO_NUMBERS = read_only(np.empty(0, np.int32))
_NO_BYTES = read_only(np.empty(0, np.uint8))
_NO_FLAGS = read_only(np.empty(0, np.bool_))
_NO_ENDS = read_only(np.zeros(1, np.int32))


@dataclass(slots=True)
class Blobs:
    """A column of byte strings as arrays: where each ends, and whether it is null."""

    data: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int32]
    valid: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, array: pa.Array) -> "Blobs":
        array = array.cast(pa.binary())
        _, ends, data = array.buffers()
        count = len(array)
        if count == 0:
            return cls(_NO_BYTES, _NO_ENDS, _NO_FLAGS)
        return cls(
            _NO_BYTES if data is None else read_only(np.frombuffer(data, np.uint8)),
            read_only(np.frombuffer(ends, np.int32)[array.offset : array.offset + count + 1]),
            read_only(array.is_valid().to_numpy(zero_copy_only=False)),
        )

    @property
    def size(self) -> int:
        return int(self.ends[-1] - self.ends[0])


class Rows:
    """A table, ready for the kernel."""

    def __init__(self, table: pa.Table, now_ms: int, with_timestamps: bool = True) -> None:
        columns = {name: _one_array(table.column(name)) for name in table.column_names}
        count = table.num_rows
        self.topics = columns.get("topic")
        self.keys = Blobs.of(columns["key"] if "key" in columns else pa.nulls(count, pa.binary()))
        self.values = Blobs.of(columns["value"])
        self.timestamps_ms = _timestamps_ms(
            columns.get("timestamp") if with_timestamps else None, count, now_ms
        )
        self.given = _given_partitions(columns.get("partition"))
        self.header_ends, self.header_keys, self.header_values = _headers(columns.get("headers"))

    def most_bytes(self) -> int:
        """An upper bound of its encoded size."""
        overhead = kernel.MAX_RECORD_OVERHEAD * len(self.timestamps_ms)
        header_count = len(self.header_keys.valid)
        blobs = (self.keys, self.values, self.header_keys, self.header_values)
        return overhead + 2 * kernel.MAX_HEADER_OVERHEAD * header_count + sum(column.size for column in blobs)


def _one_array(column: Any) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else combined.chunk(0)


def _timestamps_ms(column: pa.Array | None, count: int, now_ms: int) -> npt.NDArray[np.int64]:
    """Microseconds lose their fraction of a millisecond; seconds may be given as a double."""
    if column is None:
        return read_only(np.full(count, now_ms, np.int64))
    if pa.types.is_floating(column.type):
        column = pc.multiply(column, 1_000_000.0)
    micros = column.cast(pa.int64(), safe=False)
    return read_only(np.asarray(pc.fill_null(pc.divide(micros, 1000), now_ms)))


def _given_partitions(column: pa.Array | None) -> npt.NDArray[np.int32]:
    if column is None:
        return _NO_NUMBERS
    given = column.cast(pa.int32())
    if pc.any(pc.less(given, 0)).as_py():
        raise InvalidColumn("column 'partition' has a negative number")
    return read_only(np.asarray(pc.fill_null(given, kernel.NO_PARTITION)))


def _headers(column: pa.Array | None) -> tuple[npt.NDArray[np.int32], Blobs, Blobs]:
    nothing = Blobs(_NO_BYTES, _NO_ENDS, _NO_FLAGS)
    if column is None:
        return _NO_NUMBERS, nothing, nothing
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    ends = np.zeros(len(column) + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    pairs = pc.list_flatten(column)
    if pairs.null_count or pairs.field(0).null_count:
        raise InvalidColumn("column 'headers' has a header without a key")
    return read_only(ends), Blobs.of(pairs.field(0)), Blobs.of(pairs.field(1))


class Encoder:
    """Encodes one task's rows. `partition_count` says how many partitions a topic has."""

    def __init__(
        self,
        topic: str | None,
        batch_bytes: int,
        partition_count: Callable[[str], int],
        rng: random.Random,
        *,
        with_timestamps: bool = True,
    ) -> None:
        self._topic, self._batch_bytes, self._with_timestamps = topic, batch_bytes, with_timestamps
        self._partition_count, self._rng = partition_count, rng
        self._sticky: dict[str, npt.NDArray[np.int64]] = {}
        self._buffer = np.empty(0, np.uint8)

    def encode(self, table: pa.Table, now_ms: int) -> Iterator[EncodedRecords]:
        """The results may be used until the next table is encoded."""
        rows = Rows(table, now_ms, self._with_timestamps)
        if len(self._buffer) < rows.most_bytes():
            self._buffer = np.empty(rows.most_bytes(), np.uint8)
        used = 0
        for topic, indices in self._by_topic(rows):
            for encoded in self._encode_topic(topic, indices, rows, used):
                used += len(encoded.records)
                yield encoded

    def _by_topic(self, rows: Rows) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
        count = len(rows.timestamps_ms)
        if self._topic is not None:
            yield self._topic, read_only(np.arange(count, dtype=np.int64))
            return
        assert rows.topics is not None
        if rows.topics.null_count:
            raise InvalidColumn("column 'topic' has a null; set the option 'topic', or fill it")
        names = rows.topics.dictionary_encode()
        numbers = names.indices.to_numpy(zero_copy_only=False)
        for number, name in enumerate(names.dictionary.to_pylist()):
            yield name, read_only(np.flatnonzero(numbers == number).astype(np.int64))

    def _encode_topic(
        self, topic: str, indices: npt.NDArray[np.int64], rows: Rows, used: int
    ) -> Iterator[EncodedRecords]:
        partition_count = self._partition_count(topic)
        bounds = np.zeros(partition_count + 1, np.int64)
        ordered = np.empty(len(indices), np.int64)
        chosen = self._chosen(topic, indices, rows, partition_count)
        kernel.order_by_partition(indices, read_only(chosen), bounds, ordered)
        ordered = read_only(ordered)
        for partition in range(partition_count):
            first, last = int(bounds[partition]), int(bounds[partition + 1])
            while first < last:
                target = self._buffer[used:]
                next_first, size, max_timestamp = self._encode_batch(ordered, first, last, rows, target)
                yield EncodedRecords(
                    TopicPartition(topic, partition),
                    target[:size].data,
                    next_first - first,
                    int(rows.timestamps_ms[ordered[first]]),
                    max_timestamp,
                )
                first, used = next_first, used + size

    def _chosen(
        self, topic: str, indices: npt.NDArray[np.int64], rows: Rows, partition_count: int
    ) -> npt.NDArray[np.int32]:
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = self._sticky[topic] = np.array([self._rng.randrange(partition_count), 0], np.int64)
        chosen = np.empty(len(indices), np.int32)
        kernel.choose_partitions(
            indices,
            rows.keys.data,
            rows.keys.ends,
            rows.keys.valid,
            rows.values.ends,
            rows.given,
            partition_count,
            sticky,
            self._batch_bytes,
            chosen,
        )
        if len(chosen) and chosen.max() >= partition_count:
            raise InvalidColumn(
                f"column 'partition' names {chosen.max()}, but topic {topic!r} has {partition_count} "
                "partitions, counted from 0"
            )
        return chosen

    def _encode_batch(
        self,
        ordered: npt.NDArray[np.int64],
        first: int,
        last: int,
        rows: Rows,
        target: npt.NDArray[np.uint8],
    ) -> tuple[int, int, int]:
        return kernel.encode_rows(
            ordered,
            first,
            last,
            self._batch_bytes,
            rows.timestamps_ms,
            rows.keys.data,
            rows.keys.ends,
            rows.keys.valid,
            rows.values.data,
            rows.values.ends,
            rows.values.valid,
            rows.header_ends,
            rows.header_keys.data,
            rows.header_keys.ends,
            rows.header_keys.valid,
            rows.header_values.data,
            rows.header_values.ends,
            rows.header_values.valid,
            target,
        )
