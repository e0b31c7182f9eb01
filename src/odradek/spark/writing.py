"""The work of a task of the sink: the rows of one Spark partition to topics, at least once.

A task that is retried, and a batch that is repeated after a crash, writes its rows again: idempotence
covers retries within a task, not between two runs of a task. `exactly_once` writes each row once.
"""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from odradek.client.cluster import Cluster, borrow_cluster
from odradek.client.producing import Producer
from odradek.spark.kernels import ready
from odradek.spark.options import SinkOptions
from odradek.spark.worker import called_by_spark, spare_what_stays

ROUND_BYTES = 8 * 1024 * 1024  # of rows that are encoded together, while the last such round is on the way


@dataclass(frozen=True)
class TaskIdentity:
    """Which piece of which batch of which query; a batch query has no query id and no batch id."""

    query_id: str | None
    batch_id: int | None
    partition_id: int
    attempt: int


@dataclass
class Written(WriterCommitMessage):
    task: TaskIdentity
    rows: int


def task_identity() -> TaskIdentity:
    context = TaskContext.get()
    if context is None:
        return TaskIdentity(None, None, 0, 0)
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    return TaskIdentity(
        context.getLocalProperty("sql.streaming.queryId"),
        None if batch_id is None else int(batch_id),
        context.partitionId(),
        context.attemptNumber(),
    )


def write_rows(batches: Iterator[pa.RecordBatch], options: SinkOptions) -> Written:
    task, rows = task_identity(), 0
    with _sink(options, is_known=options.reached_before or bool(task.batch_id)) as send:
        for table in rounds_of(batches):
            send(table)
            rows += table.num_rows
    spare_what_stays()
    return Written(task, rows)


@contextmanager
def _sink(options: SinkOptions, *, is_known: bool) -> "Iterator[Sender]":
    """A stream that has written a batch before has reached its brokers, and waits for them."""
    with borrow_cluster(options.properties.client, was_reached=is_known) as cluster:
        sender = Sender(cluster, options)
        yield sender
        sender.close()


class Sender:
    """Encodes and sends tables; connects to the cluster only when there is a row."""

    def __init__(self, cluster: Cluster, options: SinkOptions) -> None:
        from odradek.spark.encoding import Encoder  # imports numba, which only workers need

        ready("writing")
        self._cluster, self._settings = cluster, options.properties.produce
        self._producer: Producer | None = None
        self._partition_counts: dict[str, int] = {}
        self._encoder = Encoder(
            options.topic,
            self._settings.batch_bytes,
            self._partition_count,
            random.Random(),
            with_timestamps=options.include_timestamp,
        )

    def __call__(self, table: pa.Table) -> None:
        if self._producer is None:
            self._producer = Producer(self._cluster, self._settings)
        now_ms = int(time.time() * 1000)
        self._producer.send(list(self._encoder.encode(table, now_ms)))

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()

    def _partition_count(self, topic: str) -> int:
        if topic not in self._partition_counts:
            found = self._cluster.partitions_of([topic], create=True)
            self._partition_counts[topic] = len(found)
        return self._partition_counts[topic]


def rounds_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Arrow batches are small; more rows at a time make fuller record batches."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        held.append(batch)
        size += batch.nbytes
        if size >= ROUND_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options

    @called_by_spark
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(iterator, self._options)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options

    @called_by_spark
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(iterator, self._options)
