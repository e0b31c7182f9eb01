"""One of Spark's queries of a pipeline, from weaving to stopping.

A pipeline is several queries: one for each sink, and, with dead letters, one for each stage that may
reject rows. Each has its own checkpoint and its own pace; they do not affect each other.

**A clean stop repeats nothing.** Spark's `stop` interrupts whatever runs, so a batch may have been written but not
recorded as finished. Here batches are written behind a gate: to stop, the gate is taken, which means that no
batch is being written; then we wait for the last one in Spark's commit log; then Spark is stopped.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.checking import check_reads
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.dead_letters import (
    decode_letters,
    knows_its_record,
    record_letters,
    records_of_rows,
    row_letters,
    write_letters,
)
from odradek.pipeline.decoding import REJECTED
from odradek.pipeline.definition import JdbcSink, Pipeline, Sink
from odradek.pipeline.progress import OBSERVED, BatchProgress, batch_progress
from odradek.pipeline.rejecting import write_jdbc_rows
from odradek.pipeline.session import new_session
from odradek.pipeline.sinks import batch_writer, file_writer, is_written_by_us, project
from odradek.pipeline.weaving import REASON, BatchReader, StreamReader, Weaver, graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

COMMIT_WAIT_S = 60.0
SOURCES_WAIT_S = 20.0


@dataclass(frozen=True)
class QueryId:
    """`kind` is sink, decode or transform; `name` that of the sink or the stage."""

    kind: str
    name: str

    @property
    def label(self) -> str:
        return self.name if self.kind == "sink" else f"rejects of {self.name}"


def queries_of(pipeline: Pipeline, needed: set[str]) -> list[QueryId]:
    found = [QueryId("sink", name) for name in pipeline.sinks]
    if pipeline.dead_letters is None:
        return found
    for name, source in pipeline.sources.items():
        if name in needed and not source.is_static and source.format not in ("raw", "parquet"):
            found.append(QueryId("decode", name))
    for name, transform in pipeline.transforms.items():
        if name in needed and transform.require:
            found.append(QueryId("transform", name))
    return found


class Stopping(Exception):
    """Raised instead of writing a batch: the gate is closed."""


class Gate:
    """Lets one batch be written at a time, and none after it is closed."""

    def __init__(self, write: Callable[[DataFrame, int], None]) -> None:
        self._write, self._lock = write, threading.Lock()
        self.last_batch: int | None = None
        self.closed = False

    def __call__(self, rows: DataFrame, batch: int) -> None:
        with self._lock:
            if self.closed:
                raise Stopping
            self._write(rows, batch)
            self.last_batch = batch

    def close(self) -> None:
        """Waits for a batch that is being written."""
        with self._lock:
            self.closed = True


class Query:
    def __init__(
        self,
        spark: "SparkSession",
        pipeline: Pipeline,
        identity: QueryId,
        *,
        once: bool,
        show: Callable[[str], None],
        message_bytes: int | None = None,
    ) -> None:
        self.spark, self.pipeline, self.identity = spark, pipeline, identity
        self.once, self._show, self._message_bytes = once, show, message_bytes
        self.checkpoint = Checkpoint(pipeline)
        self.directory = self.checkpoint.query(identity.kind, identity.name)
        self._query: StreamingQuery | None = None
        self._gate: Gate | None = None
        self._last_batch_seen = -1
        self.refused: dict[int, int] = {}  # rows that the database refused, by batch

    # Weaving

    @property
    def _stage(self) -> str:
        """The last stage that the query needs."""
        identity = self.identity
        return self.pipeline.sinks[identity.name].input if identity.kind == "sink" else identity.name

    @property
    def _group(self) -> str:
        return self.identity.name if self.identity.kind == "sink" else f"{self.identity.name}-rejects"

    def _skipped(self) -> Any:
        return self.checkpoint.skipped(self.identity.kind, self.identity.name)

    def _frame(self, weaver: Weaver) -> DataFrame:
        """The rows that the query passes to its writer, counted."""
        pipeline, name = self.pipeline, self.identity.name
        woven = weaver.weave(self._stage, self._skipped())
        rows = F.count(F.lit(1)).alias("rows")
        if self.identity.kind == "sink":
            sink = pipeline.sinks[name]
            if not isinstance(sink.target, JdbcSink):
                return project(pipeline, sink, woven.rows[sink.input], self._message_bytes).observe(
                    OBSERVED, rows
                )
            return woven.rows[sink.input].observe(OBSERVED, rows)
        if self.identity.kind == "decode":
            rejected = F.count_if(REJECTED).alias("rejected")
            decoded = woven.decoded[name].observe(OBSERVED, rows, rejected)
            return decode_letters(pipeline, pipeline.sources[name], decoded, woven.schemas[name])
        judged = woven.judged[name]
        rejected = F.count_if(F.col(REASON).isNotNull()).alias("rejected")
        return judged.observe(OBSERVED, rows, rejected).where(F.col(REASON).isNotNull())

    def frame(self) -> DataFrame:
        """Woven over streams, in its own session."""
        named = self._names_sources()
        session = new_session(self.spark, named_sources=named)
        headers = self.identity.kind != "sink"
        reader = StreamReader(session, self.pipeline, self._group, headers=headers, named=named)
        return self._frame(Weaver(session, self.pipeline, reader))

    def _names_sources(self) -> bool:
        if self.identity.kind != "sink":
            return True
        sink = self.pipeline.sinks[self.identity.name]
        session = new_session(self.spark)
        weaver = Weaver(session, self.pipeline, StreamReader(session, self.pipeline, self._group))
        return check_reads(self.pipeline, sink, weaver.weave(sink.input).rows[sink.input])

    def batch_frame(self, starting: Any, ending: Any) -> DataFrame:
        """The same over a batch of records between offsets."""
        session = self.spark.newSession()
        return self._frame(
            Weaver(session, self.pipeline, BatchReader(session, self.pipeline, starting, ending))
        )

    # Running

    def start(self) -> None:
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.pipeline.name)
        frame = self.frame()
        writer = frame.writeStream.option("checkpointLocation", str(self.directory))
        writer = writer.queryName(f"{self.pipeline.name}.{self.identity.label}")
        if self.once:
            writer = writer.trigger(availableNow=True)
        elif self.pipeline.trigger:
            writer = writer.trigger(processingTime=self.pipeline.trigger)
        self._last_batch_seen = -1
        self._query = self._with_sink(writer).start()
        self._await_sources()

    def _await_sources(self) -> None:
        """Each query starts its own Python processes, and Spark gives each of them ten seconds. So queries start
        one after the other: when this returns, this one has its sources, or has ended, or is slow."""
        deadline = time.monotonic() + SOURCES_WAIT_S
        while self.is_active and time.monotonic() < deadline:
            assert self._query is not None
            if not self._query.status["message"].startswith(("Initializing", "Getting offsets")):
                return
            time.sleep(0.05)

    def _with_sink(self, writer: "DataStreamWriter") -> "DataStreamWriter":
        self._gate = None
        if self.identity.kind == "sink":
            sink = self.pipeline.sinks[self.identity.name]
            writer = writer.outputMode(sink.mode)
            if not is_written_by_us(sink):
                return file_writer(self.pipeline, sink, writer)
        self._gate = Gate(self._writer())
        return writer.foreachBatch(self._gate)

    def _writer(self) -> Callable[[DataFrame, int], None]:
        identity, pipeline = self.identity, self.pipeline
        if identity.kind == "sink":
            sink = pipeline.sinks[identity.name]
            if isinstance(sink.target, JdbcSink):
                return lambda rows, batch: self._write_table(sink, rows, batch)
            return batch_writer(sink, self._show)
        return self._write_rejected

    def _letters_place(self, batch: int) -> str:
        """The directory for files of a batch's dead letters: the same if it runs again, and not shared with other
        queries."""
        identity = self.identity
        query = self.checkpoint.query_id(identity.kind, identity.name)[:8]
        return f"{identity.kind}.{identity.name}/{query}-{batch:09d}"

    def _write_table(self, sink: Sink, rows: DataFrame, batch: int) -> None:
        self.refused[batch] = write_jdbc_rows(self.pipeline, sink, rows, self._letters_place(batch))

    def _write_rejected(self, rows: DataFrame, batch: int) -> None:
        """Rejected rows are few. They are cached while they are written, so that they are computed once."""
        rows.persist()
        try:
            if not rows.isEmpty():
                letters = rows if self.identity.kind == "decode" else self._letters_of(rows)
                write_letters(letters, self.pipeline, self._letters_place(batch))
        finally:
            rows.unpersist()

    def _letters_of(self, rows: DataFrame) -> DataFrame:
        name = self.identity.name
        needed = graph(rows.sparkSession, self.pipeline).needed_by(name)
        source = knows_its_record(rows, self.pipeline, needed)
        if source is None:
            return row_letters(rows, self.pipeline, "transform", name, F.col(REASON))
        records = records_of_rows(rows.sparkSession, self.pipeline, source, rows)
        return record_letters(records, self.pipeline, "transform", name, F.col(REASON))

    @property
    def is_active(self) -> bool:
        return self._query is not None and self._query.isActive

    def failure(self) -> str | None:
        """The error that ended the query, if any."""
        error = self._query.exception() if self._query is not None else None
        return None if error is None else str(error)

    def new_progress(self) -> list[BatchProgress]:
        if self._query is None:
            return []
        found = []
        for one in self._query.recentProgress:
            facts = json.loads(one.json)  # as an object, offsets are texts in it
            if facts["batchId"] <= self._last_batch_seen or not facts.get("durationMs", {}).get("addBatch"):
                continue
            self._last_batch_seen = facts["batchId"]
            found.append(batch_progress(self.pipeline.name, self.identity.label, self.identity.kind, facts))
        return found

    def stop(self) -> None:
        """Between two batches; a batch that was written is known as finished afterwards."""
        if self._query is None:
            return
        if self._gate is not None:
            self._gate.close()
            self._await_commit(self._gate.last_batch)
        self._query.stop()

    def _await_commit(self, batch: int | None) -> None:
        deadline = time.monotonic() + COMMIT_WAIT_S
        while batch is not None and self.is_active and time.monotonic() < deadline:
            if (self.directory / "commits" / str(batch)).exists():
                return
            time.sleep(0.01)
