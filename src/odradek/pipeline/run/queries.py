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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.check.checking import check_reads
from odradek.pipeline.check.weaving import StreamReader, Weaver, graph
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.definition import Pipeline
from odradek.pipeline.kinds.dead_letters import (
    decode_letters,
    knows_its_record,
    record_letters,
    records_of_rows,
    row_letters,
    write_letters,
)
from odradek.pipeline.kinds.registry import sink_kind, source_kind, source_kinds
from odradek.pipeline.kinds.sink import Batch, SinkKind
from odradek.pipeline.rows.decoding import REJECTED
from odradek.pipeline.rows.transforms import REASON
from odradek.pipeline.run.held_batch import HeldReader
from odradek.pipeline.run.isolation import Ranges
from odradek.pipeline.run.progress import OBSERVED, BatchProgress, batch_progress
from odradek.pipeline.session import new_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

COMMIT_WAIT_S = 60.0
SOURCES_WAIT_S = 20.0
ACTIVITIES = {"Initializing sources": "starting its sources", "Processing new data": "processing a batch"}


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
    for name, source in source_kinds(pipeline).items():
        if name in needed and source.can_reject:
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
        self.error: Exception | None = None  # what a batch failed with: Spark keeps only its text

    def __call__(self, rows: DataFrame, batch: int) -> None:
        with self._lock:
            if self.closed:
                raise Stopping
            try:
                self._write(rows, batch)
            except Exception as error:
                self.error = error
                raise
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
        sink: SinkKind | None = None,
    ) -> None:
        self.spark, self.pipeline, self.identity = spark, pipeline, identity
        self.once, self._show = once, show
        self._sink = sink
        if sink is None and identity.kind == "sink":
            self._sink = sink_kind(pipeline, pipeline.sinks[identity.name])
        self.checkpoint = Checkpoint(pipeline)
        self.directory = self.checkpoint.query(identity.kind, identity.name)
        self._query: StreamingQuery | None = None
        self._gate: Gate | None = None
        self._last_batch_seen = -1
        self.refused: dict[int, int] = {}  # rows that the sink refused, by batch

    # Weaving

    @property
    def _stage(self) -> str:
        """The last stage that the query needs."""
        return self.identity.name if self._sink is None else self._sink.sink.input

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
        if self._sink is not None:
            return self._sink.plan(woven.rows[self._stage]).observe(OBSERVED, rows)
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
        headers = self._sink is None
        reader = StreamReader(session, self.pipeline, self._group, headers=headers, named=named)
        return self._frame(Weaver(session, self.pipeline, reader))

    def _names_sources(self) -> bool:
        if self._sink is None:
            return True
        sink = self._sink.sink
        session = new_session(self.spark)
        weaver = Weaver(session, self.pipeline, StreamReader(session, self.pipeline, self._group))
        return check_reads(self.pipeline, sink, weaver.weave(sink.input).rows[sink.input])

    @contextmanager
    def held_batch(self, batch: dict[str, Ranges]) -> Iterator[Callable[[dict[str, Ranges]], DataFrame]]:
        """Weaves the query over parts of a batch of records, which are read once."""
        session = self.spark.newSession()
        reader = HeldReader(session, self.pipeline, batch)
        reader.hold()
        try:
            yield lambda chosen: self._frame(Weaver(session, self.pipeline, reader.only(chosen)))
        finally:
            reader.release()

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
        if self._sink is not None:
            writer = writer.outputMode(self._sink.sink.mode)
            sparks_own = self._sink.spark_writer(writer)
            if sparks_own is not None:
                return sparks_own
        self._gate = Gate(self._write_rejected if self._sink is None else self._write_batch)
        return writer.foreachBatch(self._gate)

    def _letters_place(self, batch: int) -> str:
        """The directory for files of a batch's dead letters: the same if it runs again, and not shared with other
        queries."""
        identity = self.identity
        query = self.checkpoint.query_id(identity.kind, identity.name)[:8]
        return f"{identity.kind}.{identity.name}/{query}-{batch:09d}"

    def _write_batch(self, rows: DataFrame, number: int) -> None:
        assert self._sink is not None
        if self._sink.committed(number):
            rows.write.format("noop").mode("overwrite").save()  # state and watermark move on all the same
            return
        batch = Batch(number, lambda: self._letters_place(number), self._show)
        if refused := self._sink.write(batch, rows):
            self.refused[number] = refused

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
        origins = (
            source_kind(self.pipeline, self.pipeline.sources[one])
            for one in self.pipeline.sources
            if one in needed
        )
        source = knows_its_record(rows, origins)
        if source is None:
            return row_letters(rows, self.pipeline, "transform", name, F.col(REASON))
        records = records_of_rows(rows.sparkSession, source, rows)
        return record_letters(records, self.pipeline, "transform", name, F.col(REASON))

    @property
    def is_active(self) -> bool:
        return self._query is not None and self._query.isActive

    @property
    def activity(self) -> str:
        """What the query is busy with; empty while it waits for records."""
        message = self._query.status["message"] if self._query is not None else ""
        for begin, words in ACTIVITIES.items():
            if message.startswith(begin):
                return words
        return ""

    def failure(self) -> Exception | None:
        """The error that ended the query, if any."""
        if self._gate is not None and self._gate.error is not None:
            return self._gate.error
        return self._query.exception() if self._query is not None else None

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
