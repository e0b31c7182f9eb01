"""The rows of a batch as record batches that are ready to be sent, by a driver that sends them itself.

Tasks encode and compress what they would send (`encode_task`); Spark keeps the result, and the driver reads it in the
order of tasks and rows. Most batches are small: what a task encodes first travels to the driver with the result of
the very job that computes it (`inline`); only what is left of larger ones is read from Spark's storage while it is
sent, so that no batch has to fit into the driver's memory.

**A batch is computed once.** Spark computes a part again if it lost it, and rand() or a function of the user's may then
give other rows. So each task marks what it encodes with a random number. If it differs from that of the first time,
the rows are refused (`RowsChanged`), and whoever sends them begins anew.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from odradek.client.cluster import borrow_cluster
from odradek.client.producing import EncodedRecords
from odradek.ledger.writer import RowsChanged
from odradek.model import TopicPartition
from odradek.records.compression import Codec, compress
from odradek.spark.options import SinkOptions
from odradek.spark.schema import SINK_COLUMNS, check_sink_schema
from odradek.spark.worker import iterated_by_spark, spare_what_stays
from odradek.spark.writing import rounds_of, task_identity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = (
    "task int, mark bigint, number int, topic string, partition int, rows int, base_time bigint, max_time bigint, "
    "codec int, size bigint, inline boolean, records binary"
)
ARROW_COLUMNS = pa.schema(
    [
        ("task", pa.int32()),
        ("mark", pa.int64()),
        ("number", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("rows", pa.int32()),
        ("base_time", pa.int64()),
        ("max_time", pa.int64()),
        ("codec", pa.int32()),
        ("size", pa.int64()),
        ("inline", pa.bool_()),
        ("records", pa.binary()),
    ]
)
FIRST_INLINE_BYTES = 1024 * 1024  # of a task, before it is known how many tasks there are
INLINE_BYTES = 128 * 1024 * 1024  # of all tasks; Spark allows a result of 1 GB
ROUND_BYTES = 8 * 1024 * 1024
CHUNK_BYTES = 64 * 1024 * 1024  # to read from Spark's storage at a time

Row = dict[str, Any]


# In tasks


def encoder_of(
    options: SinkOptions, partition_counts: Mapping[str, int], inline_bytes: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with its rows, for `mapInArrow`."""

    def encode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return encode_task(batches, options, partition_counts, inline_bytes)

    return encode


@iterated_by_spark
def encode_task(
    batches: Iterator[pa.RecordBatch],
    options: SinkOptions,
    partition_counts: Mapping[str, int],
    inline_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """One row for each record batch, and a last one, without records, that says that the task was there."""
    from odradek.spark.encoding import Encoder  # imports numba, which only workers need

    produce, task = options.properties.produce, task_identity().partition_id
    mark, number, left = random.getrandbits(62), 0, inline_bytes
    counts = dict(partition_counts)

    def partition_count(topic: str) -> int:
        if topic not in counts:
            with borrow_cluster(options.properties.client, was_reached=True) as cluster:
                counts[topic] = len(cluster.partitions_of([topic], create=True))
        return counts[topic]

    encoder = Encoder(
        options.topic,
        produce.batch_bytes,
        partition_count,
        random.Random(),
        with_timestamps=options.include_timestamp,
    )
    for table in rounds_of(batches):
        rows = []
        for one in encoder.encode(table, int(time.time() * 1000)):
            records = bytes(compress(produce.codec, one.records, produce.compression_level))
            left -= len(records)
            times = (one.base_timestamp, one.max_timestamp)
            blob = (int(produce.codec), len(records), left >= 0, records)
            rows.append((task, mark, number, *one.partition, one.row_count, *times, *blob))
            number += 1
        yield _arrow(rows)
    yield _arrow([(task, mark, number, None, None, 0, 0, 0, 0, 0, True, None)])
    spare_what_stays()


def _arrow(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    by_column = zip(*rows, strict=True)
    columns = [pa.array(one, field.type) for one, field in zip(by_column, ARROW_COLUMNS, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_COLUMNS)


# In the driver


class EncodedFrame:
    """The rows of one DataFrame, computed and kept by Spark until `release`."""

    def __init__(
        self,
        frame: "DataFrame",
        options: SinkOptions,
        partition_counts: Mapping[str, int],
        inline_bytes: int = FIRST_INLINE_BYTES,
    ) -> None:
        check_sink_schema(frame.schema, options)
        known = frame.select(*(name for name in frame.columns if name in SINK_COLUMNS))
        encode = encoder_of(options, partition_counts, inline_bytes)
        self._kept = known.mapInArrow(encode, COLUMNS).persist()
        self._rows: list[Row] = []
        self.tasks = 0

    def compute(self) -> None:
        """Run the plan, once and as a whole."""
        inline = F.when(F.col("inline"), F.col("records")).alias("records")
        names = [name for name in ARROW_COLUMNS.names if name != "records"]
        found: list[Row] = self._kept.select(*names, inline).toArrow().to_pylist()
        self.tasks = sum(1 for row in found if row["topic"] is None)
        self._rows = [row for row in found if row["topic"] is not None]

    def release(self) -> None:
        self._kept.unpersist()

    @property
    def count(self) -> int:
        return sum(row["rows"] for row in self._rows)

    @property
    def topics(self) -> set[str]:
        return {row["topic"] for row in self._rows}

    def records(self) -> Iterator[EncodedRecords]:
        """All of them, in the order of tasks and rows."""
        later: list[Row] = []
        for row in self._rows:
            if later and (row["task"] != later[0]["task"] or _size(later) >= CHUNK_BYTES):
                yield from self._read(later)
                later = []
            if row["inline"]:
                yield _encoded(row)
            else:
                later.append(row)
        if later:
            yield from self._read(later)

    def _read(self, wanted: Sequence[Row]) -> Iterator[EncodedRecords]:
        """Rows of one task, from Spark's storage."""
        first, last = wanted[0], wanted[-1]
        chosen = (F.col("task") == first["task"]) & F.col("number").between(first["number"], last["number"])
        found = self._kept.where(chosen & F.col("topic").isNotNull()).toArrow().to_pylist()
        if [(row["number"], row["mark"]) for row in found] != [
            (row["number"], row["mark"]) for row in wanted
        ]:
            raise RowsChanged("Spark lost rows that were computed, and computed them again")
        yield from map(_encoded, found)


def _size(rows: Sequence[Row]) -> int:
    return sum(row["size"] for row in rows)


def _encoded(row: Row) -> EncodedRecords:
    place = TopicPartition(row["topic"], row["partition"])
    return EncodedRecords(
        place, row["records"], row["rows"], row["base_time"], row["max_time"], Codec(row["codec"])
    )


class BatchRows:
    """The rows of a batch, of one frame or several: what `ledger.writer` sends."""

    def __init__(self, frames: Sequence[EncodedFrame]) -> None:
        self._frames = frames

    @property
    def count(self) -> int:
        return sum(frame.count for frame in self._frames)

    @property
    def topics(self) -> Sequence[str]:
        return sorted(set().union(*(frame.topics for frame in self._frames)))

    def rounds(self) -> Iterator[list[EncodedRecords]]:
        held: list[EncodedRecords] = []
        size = 0
        for frame in self._frames:
            for one in frame.records():
                held.append(one)
                size += len(one.records)
                if size >= ROUND_BYTES:
                    yield held
                    held, size = [], 0
        if held:
            yield held
