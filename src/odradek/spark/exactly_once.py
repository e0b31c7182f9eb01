"""Streams and batches to topics, every row once for readers of committed data.

The driver is the only writer: tasks encode (`blobs`), and the driver sends what they encoded in one transaction,
together with a record in the ledger (`odradek.ledger`). docs/decisions/0008 says what happens at every crash. A batch
that turns out to be written already was computed all the same: Spark's state and watermark move on.
"""

import re
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.client.cluster import Cluster
from odradek.client.properties import Properties
from odradek.ledger.protocol import Adoption, Order
from odradek.ledger.writer import Writer, Written
from odradek.spark.blobs import (
    FIRST_INLINE_BYTES,
    INLINE_BYTES,
    SMALL_BYTES,
    BatchRows,
    EncodedFrame,
    Way,
)
from odradek.spark.options import EXACTLY_ONCE_ID, InvalidOption, SinkOptions, parse_sink_options
from odradek.spark.query_checkpoint import QueryCheckpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ONCE = "once/"  # before the id of a batch that is no stream's
ONLY_BATCH = "the only batch"
FEWEST_TASKS = 8
LOCAL_MASTER = re.compile(r"local(\[.*\])?")  # and not local-cluster[…]


@dataclass(frozen=True)
class Part:
    """Rows with the columns of the sink, and where they go. All parts of a batch go to one cluster."""

    frame: "DataFrame"
    options: SinkOptions


class OnceSink:
    """One sink on one cluster: the writer of its batches, as long as this process lives."""

    def __init__(self, properties: Properties, sink: str, name: str = "") -> None:
        self.sink, self._cluster = sink, Cluster(properties.client)
        produce = properties.produce
        self._writer = Writer(self._cluster, sink, produce, produce.transaction_timeout_ms, name)
        self._counts: dict[str, int] = {}
        self._way = Way(FIRST_INLINE_BYTES, keeps=True)  # where tasks are on other machines

    def write(
        self,
        order: Order,
        parts: Iterable[Part],
        checkpoint: QueryCheckpoint | None,
        *,
        was_reached: bool,
    ) -> Written:
        """Compute everything, each part before the next is asked for; then send it in one transaction."""
        self._cluster.was_reached |= was_reached
        began_s = time.monotonic()
        frames = []
        try:
            for part in parts:
                frames.append(self._encoded(part))
                frames[-1].compute()
            self._learn_from(frames)
            spent = {"compute": int((time.monotonic() - began_s) * 1000)}
            adopt = _nothing_to_note if checkpoint is None else checkpoint.adopt
            return self._writer.write(order, BatchRows(frames), adopt, spent)
        finally:
            for frame in frames:
                frame.release()

    def seen(self, order: Order) -> Written | None:
        """Look the batch up: it need not be computed if it was written; `write` knows for certain."""
        return self._writer.seen(order)

    def close(self) -> None:
        self._cluster.close()

    def _encoded(self, part: Part) -> EncodedFrame:
        topic = part.options.topic
        if topic is not None:
            self._counts[topic] = len(self._cluster.partitions_of([topic], create=True))
        way = way_of_this_machine(part.frame.sparkSession) or self._way
        return EncodedFrame(part.frame, part.options, self._counts, way)

    def _learn_from(self, frames: Sequence[EncodedFrame]) -> None:
        """Spark need not keep the next batch if twice as many rows would fit into the results of its tasks."""
        tasks = sum(len(frame.task_bytes) for frame in frames)
        largest = max((size for frame in frames for size in frame.task_bytes.values()), default=0)
        inline_bytes = INLINE_BYTES // max(FEWEST_TASKS, tasks)
        self._way = Way(inline_bytes, keeps=2 * largest > inline_bytes)


def way_of_this_machine(session: "SparkSession") -> Way | None:
    """Return the way by files if all tasks run on the driver's machine; they are beside those that Spark removes when
    it ends.
    """
    context = session.sparkContext
    if not LOCAL_MASTER.fullmatch(context.master or ""):
        return None
    return Way(SMALL_BYTES, directory=tempfile.mkdtemp(prefix="batch-", dir=context._temp_dir))


def _nothing_to_note(_: Adoption) -> None:
    """A batch that is no stream's has no checkpoint: its id is all there is."""


class StreamSink:
    """The function that `foreachBatch` calls, for one query."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = _parsed(options)
        self._sinks: dict[str, OnceSink] = {}

    def __call__(self, batch: "DataFrame", number: int) -> None:
        checkpoint = QueryCheckpoint.of(batch)
        sink = self._sinks.get(checkpoint.query_id)
        if sink is None:
            properties = self._options.properties
            sink = self._sinks[checkpoint.query_id] = OnceSink(
                properties, checkpoint.query_id, checkpoint.name
            )
        order = order_of(checkpoint, number)
        sink.write(order, [Part(batch, self._options)], checkpoint, was_reached=number > 0)


def _parsed(options: Mapping[str, str]) -> SinkOptions:
    if any(name.lower() == EXACTLY_ONCE_ID.lower() for name in options):
        problem = "leave it out: a stream is known by its checkpoint, and a batch by the id of write_once"
        raise InvalidOption(EXACTLY_ONCE_ID, problem)
    return parse_sink_options(options)


def order_of(checkpoint: QueryCheckpoint, number: int) -> Order:
    return Order(checkpoint.query_id, number, checkpoint.fingerprint(number), checkpoint.adoption())


def write_stream(writer: "DataStreamWriter", options: Mapping[str, str]) -> "DataStreamWriter":
    if ".connect." in type(writer).__module__:
        raise InvalidOption(
            "exactly once",
            "Spark Connect does not tell a batch which query it belongs to; use a session in the driver",
        )
    return writer.foreachBatch(StreamSink(options))


def write_batch(frame: "DataFrame", options: Mapping[str, str], sink: str) -> Written:
    if ".connect." in type(frame).__module__:
        raise InvalidOption("exactly once", "Spark Connect is not supported; use a session in the driver")
    if not (isinstance(sink, str) and sink.strip()):
        raise InvalidOption("id", "must be a text that names the batch, like 'orders of 2026-11-18'")
    parsed = _parsed(options)
    order = Order(ONCE + sink, 0, ONLY_BATCH)
    with closing(OnceSink(parsed.properties, order.sink, sink)) as once:
        return once.seen(order) or once.write(order, [Part(frame, parsed)], None, was_reached=False)
