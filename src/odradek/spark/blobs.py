"""The rows of a batch as record batches that are ready to be sent, by a driver that sends them itself.

Tasks encode and compress what they would send (`encode_task`), and the driver gets it in the order of tasks and rows.
Most batches are small: what a task encodes first travels to the driver with the result of the very job that computes
it (`inline`). No batch has to fit into the driver's memory; `Way` says where the rest is until it is sent:

    directory   in files, if tasks run on the driver's machine: each byte is copied once, where Spark copies it
                ten times
    keeps       in Spark's storage, which costs as much as encoding
    neither     nowhere: whoever expects that there is no rest need not pay for it. If there is one after all, the
                batch is computed again, and kept

**A batch is computed once.** Spark computes a part again if it lost it, and rand() or a function of the user's may then
give other rows. So each task marks what it encodes with a random number. If it differs from that of the first time,
the rows are refused (`RowsChanged`), and whoever sends them begins anew.
"""

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
from pyspark.sql import functions as F

from odradek.client.cluster import borrow_cluster
from odradek.client.producing import EncodedRecords
from odradek.ledger.writer import RowsChanged
from odradek.model import TopicPartition
from odradek.records.batch import Buffer
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
SMALL_BYTES = 64 * 1024  # of a task, that are not worth a file
FIRST_INLINE_BYTES = 1024 * 1024  # of a task, before it is known how many tasks there are
INLINE_BYTES = 128 * 1024 * 1024  # of all tasks; Spark allows a result of 1 GB
ROUND_BYTES = 8 * 1024 * 1024
CHUNK_BYTES = 64 * 1024 * 1024  # to read from Spark's storage at a time

Row = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """The way of rows to the driver: so many bytes of each task with its result, the rest as the module says."""

    inline_bytes: int
    keeps: bool = False
    directory: str | None = None


# In tasks


def encoder_of(
    options: SinkOptions, partition_counts: Mapping[str, int], way: Way
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what a task does with its rows, for `mapInArrow`."""

    def encode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return encode_task(batches, options, partition_counts, way)

    return encode


@iterated_by_spark
def encode_task(
    batches: Iterator[pa.RecordBatch],
    options: SinkOptions,
    partition_counts: Mapping[str, int],
    way: Way,
) -> Iterator[pa.RecordBatch]:
    """One row for each record batch, and a last one, without records, that says that the task was there."""
    from odradek.spark.encoding import Encoder  # imports numba, which only workers need

    produce, task = options.properties.produce, task_identity().partition_id
    mark, number, rest = random.getrandbits(62), 0, _Rest(way)
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
            records = compress(produce.codec, one.records, produce.compression_level)
            times = (one.base_timestamp, one.max_timestamp)
            blob = (int(produce.codec), len(records), *rest.put(task, mark, records))
            rows.append((task, mark, number, *one.partition, one.row_count, *times, *blob))
            number += 1
        yield _arrow(rows)
    rest.close()
    yield _arrow([(task, mark, number, None, None, 0, 0, 0, 0, 0, True, None)])
    spare_what_stays()


class _Rest:
    """A task's records go with its result as long as there is room, and then where `way` says."""

    def __init__(self, way: Way) -> None:
        self._way, self._left = way, way.inline_bytes
        self._file: BinaryIO | None = None

    def put(self, task: int, mark: int, records: Buffer) -> tuple[bool, bytes | None]:
        """The last two columns: whether the records are inline, and the records, unless they are elsewhere."""
        self._left -= len(records)
        if self._left >= 0 or self._way.keeps:
            return self._left >= 0, bytes(records)
        if self._way.directory is not None:
            if self._file is None:
                self._file = _file_of(self._way.directory, task, mark).open("wb")
            self._file.write(records)
        return False, None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _file_of(directory: str, task: int, mark: int) -> Path:
    """Each attempt of a task has its own."""
    return Path(directory) / f"{task}-{mark}"


def _arrow(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    by_column = zip(*rows, strict=True)
    columns = [pa.array(one, field.type) for one, field in zip(by_column, ARROW_COLUMNS, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_COLUMNS)


# In the driver


class EncodedFrame:
    """The rows of one DataFrame, computed once, and held until `release`."""

    def __init__(
        self, frame: "DataFrame", options: SinkOptions, partition_counts: Mapping[str, int], way: Way
    ) -> None:
        check_sink_schema(frame.schema, options)
        self._frame = frame.select(*(name for name in frame.columns if name in SINK_COLUMNS))
        self._options, self._counts, self._way = options, partition_counts, way
        self._kept: DataFrame | None = None
        self._rows: list[Row] = []
        self._is_stale = False  # some rows are no longer those that were computed with the others
        self.task_bytes: Counter[int] = Counter()  # of all tasks, also of those that have no rows

    def compute(self) -> None:
        """Run the plan, once and as a whole; a second time if it turns out that Spark has to keep the rows."""
        found = self._collected()
        if any(not row["inline"] for row in found) and not self._way.keeps and self._way.directory is None:
            self._way = replace(self._way, keeps=True)
            found = self._collected()
        self.task_bytes = Counter({row["task"]: 0 for row in found})
        for row in found:
            self.task_bytes[row["task"]] += row["size"]
        self._rows = [row for row in found if row["topic"] is not None]

    def ready(self) -> None:
        """Compute everything again if a part of it was lost."""
        if self._is_stale:
            assert self._kept is not None
            self._kept.unpersist()
            self.compute()
            self._is_stale = False

    def _collected(self) -> list[Row]:
        encoded = self._frame.mapInArrow(encoder_of(self._options, self._counts, self._way), COLUMNS)
        if not self._way.keeps:
            return _rows_of(encoded.toArrow())
        self._kept = encoded.persist()
        inline = F.when(F.col("inline"), F.col("records")).alias("records")
        names = [name for name in ARROW_COLUMNS.names if name != "records"]
        return _rows_of(self._kept.select(*names, inline).toArrow())

    def release(self) -> None:
        if self._kept is not None:
            self._kept.unpersist()
        if self._way.directory is not None:
            shutil.rmtree(self._way.directory, ignore_errors=True)

    @property
    def count(self) -> int:
        return sum(row["rows"] for row in self._rows)

    @property
    def partitions(self) -> set[TopicPartition]:
        return {TopicPartition(row["topic"], row["partition"]) for row in self._rows}

    def records(self) -> Iterator[EncodedRecords]:
        """All of them, in the order of tasks and rows."""
        read = self._from_spark if self._kept is not None else self._from_file
        for task, rows in groupby(self._rows, lambda row: None if row["inline"] else row["task"]):
            found = list(rows)
            yield from map(_encoded, found) if task is None else read(found)

    def _from_file(self, wanted: Sequence[Row]) -> Iterator[EncodedRecords]:
        """The rest of one task."""
        assert self._way.directory is not None
        position = 0
        with _file_of(self._way.directory, wanted[0]["task"], wanted[0]["mark"]).open("rb") as file:
            content = memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))
        for row in wanted:
            yield _encoded(row | {"records": content[position : position + row["size"]]})
            position += row["size"]

    def _from_spark(self, wanted: Sequence[Row]) -> Iterator[EncodedRecords]:
        """The rest of one task, a chunk at a time."""
        chunk: list[Row] = []
        for row in wanted:
            chunk.append(row)
            if sum(one["size"] for one in chunk) >= CHUNK_BYTES:
                yield from self._chunk_from_spark(chunk)
                chunk = []
        if chunk:
            yield from self._chunk_from_spark(chunk)

    def _chunk_from_spark(self, wanted: Sequence[Row]) -> Iterator[EncodedRecords]:
        assert self._kept is not None
        first, last = wanted[0], wanted[-1]
        chosen = (F.col("task") == first["task"]) & F.col("number").between(first["number"], last["number"])
        found = _rows_of(self._kept.where(chosen & F.col("topic").isNotNull()).toArrow())
        if [(row["number"], row["mark"]) for row in found] != [
            (row["number"], row["mark"]) for row in wanted
        ]:
            self._is_stale = True
            raise RowsChanged("Spark lost rows that were computed, and computed them again")
        yield from map(_encoded, found)


def _rows_of(table: pa.Table) -> list[Row]:
    """Returns the rows as dictionaries; records are views, not copies."""
    rows: list[Row] = table.drop_columns("records").to_pylist()
    for row, records in zip(rows, table.column("records"), strict=True):
        row["records"] = records.as_buffer()
    return rows


def _encoded(row: Row) -> EncodedRecords:
    place = TopicPartition(row["topic"], row["partition"])
    return EncodedRecords(
        place, memoryview(row["records"]), row["rows"], row["base_time"], row["max_time"], Codec(row["codec"])
    )


class BatchRows:
    """The rows of a batch, of one frame or several: what `ledger.writer` sends."""

    def __init__(self, frames: Sequence[EncodedFrame]) -> None:
        self._frames = frames

    @property
    def count(self) -> int:
        return sum(frame.count for frame in self._frames)

    @property
    def partitions(self) -> set[TopicPartition]:
        return set().union(*(frame.partitions for frame in self._frames))

    def ready(self) -> None:
        for frame in self._frames:
            frame.ready()

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
