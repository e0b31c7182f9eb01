"""One of Spark's queries of a pipeline, from weaving to stopping.

A pipeline is several queries: one for each sink, and, with dead letters, one for each stage that may
reject rows, but for those that share one (`shared_query`). Each has its own checkpoint and its own pace; they do not
affect each other.

**A clean stop repeats nothing.** Spark's `stop` interrupts whatever runs, so a batch may have been written but not
recorded as finished. Here batches are written behind a gate: to stop, the gate is taken, which means that no
batch is being written; then we wait for the last one in Spark's commit log; then Spark is stopped.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from odradek.pipeline.check.checking import check_reads
from odradek.pipeline.check.state import output_mode, stateful_operators
from odradek.pipeline.check.weaving import CountingWeaver, StreamReader, Weaver
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.definition import Pipeline
from odradek.pipeline.kinds.sink import SinkKind
from odradek.pipeline.kinds.topics import kafka_options
from odradek.pipeline.rows.expectations import unmet_of
from odradek.pipeline.run.held_batch import HeldReader
from odradek.pipeline.run.isolation import Ranges
from odradek.pipeline.run.outputs import Output, QueryId
from odradek.pipeline.run.progress import BatchProgress, batch_progress, observed_unmet
from odradek.pipeline.session import new_session
from odradek.spark.exactly_once import OnceSink, Part, order_of
from odradek.spark.options import parse_sink_options
from odradek.spark.query_checkpoint import QueryCheckpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

COMMIT_WAIT_S = 60.0
SOURCES_WAIT_S = 20.0
ACTIVITIES = {"Initializing sources": "starting its sources", "Processing new data": "processing a batch"}


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
        named: bool | None = None,
    ) -> None:
        """`named`: the checkpoint knows the sources by name; None if that is not known yet."""
        self.spark, self.pipeline, self.identity, self.once = spark, pipeline, identity, once
        self.checkpoint = Checkpoint(pipeline)
        self.outputs = self._outputs(show, sink)
        self._named = named
        self.directory = self.checkpoint.query(identity.kind, identity.name)
        self._query: StreamingQuery | None = None
        self._gate: Gate | None = None
        self._once_sink: OnceSink | None = None
        self._last_batch_seen = -1
        self.refused: dict[int, int] = {}  # rows that the sink refused, by batch

    # Weaving

    def _outputs(self, show: Callable[[str], None], sink: SinkKind | None) -> list[Output]:
        return [Output(self.pipeline, self.identity, show, self._letters_place, sink)]

    @property
    def label(self) -> str:
        return self.identity.label

    @property
    def blamed(self) -> str:
        """The name that a failure is reported for."""
        return self.label

    @property
    def unwritten(self) -> list[Output]:
        """The outputs that a failed batch may have failed on."""
        return self.outputs

    @property
    def _sink(self) -> SinkKind | None:
        return self.outputs[0].sink

    @property
    def _group(self) -> str:
        return self.identity.name if self.identity.kind == "sink" else f"{self.identity.name}-rejects"

    def frame(self) -> DataFrame:
        """Woven over streams, in its own session."""
        named = self._names_sources()
        session = new_session(self.spark, named_sources=named)
        headers = self._sink is None
        reader = StreamReader(session, self.pipeline, self._group, headers=headers, named=named)
        weaver = (Weaver if headers else CountingWeaver)(session, self.pipeline, reader)
        return self.outputs[0].explained(self.outputs[0].frame(weaver), weaver)

    def _names_sources(self) -> bool:
        if self._sink is None or self._named is not None:
            return self._named is not False
        sink = self._sink.sink
        session = new_session(self.spark)
        weaver = Weaver(session, self.pipeline, StreamReader(session, self.pipeline, self._group))
        return check_reads(self.pipeline, sink, weaver.weave(sink.input).rows[sink.input])

    @contextmanager
    def held_batch(
        self, batch: dict[str, Ranges]
    ) -> Iterator[Callable[[Output, dict[str, Ranges]], DataFrame]]:
        """Weaves an output over parts of a batch of records, which are read once."""
        session = self.spark.newSession()
        reader = HeldReader(session, self.pipeline, batch)
        reader.hold()
        try:
            yield lambda output, chosen: output.frame(Weaver(session, self.pipeline, reader.only(chosen)))
        finally:
            reader.release()

    # Running

    def start(self) -> None:
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.pipeline.name)
        frame = self.frame()
        writer = frame.writeStream.option("checkpointLocation", str(self.directory))
        writer = writer.queryName(f"{self.pipeline.name}.{self.label}")
        if self.once:
            writer = writer.trigger(availableNow=True)
        elif self.pipeline.trigger:
            writer = writer.trigger(processingTime=self.pipeline.trigger)
        self._last_batch_seen = -1
        self._query = self._with_sink(writer, frame).start()
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

    def _with_sink(self, writer: "DataStreamWriter", frame: DataFrame) -> "DataStreamWriter":
        self._gate = None
        if self._sink is not None:
            writer = writer.outputMode(output_mode(self._sink.sink, stateful_operators(frame)))
            sparks_own = self._sink.spark_writer(writer)
            if sparks_own is not None:
                return sparks_own
        self._gate = Gate(self._write_batch)
        return writer.foreachBatch(self._gate)

    def _letters_place(self, batch: int) -> str:
        """The directory for files of a batch's dead letters: the same if it runs again, and not shared with other
        queries."""
        identity = self.identity
        query = self.checkpoint.query_id(identity.kind, identity.name)[:8]
        return f"{identity.kind}.{identity.name}/{query}-{batch:09d}"

    @property
    def is_once(self) -> bool:
        """True if a batch is one transaction: one output that wants it is enough, because they share their fate."""
        return self._ledger_settings is not None

    @property
    def _ledger_settings(self) -> Mapping[str, str] | None:
        found = (output.ledger_settings for output in self.outputs)
        return next((settings for settings in found if settings is not None), None)

    @property
    def letters_in_transaction(self) -> bool:
        return any(output.letters_in_transaction for output in self.outputs)

    def _write_once(self, rows: DataFrame, number: int) -> None:
        checkpoint, held = QueryCheckpoint.of(rows), list[DataFrame]()
        settings = self._ledger_settings
        assert settings is not None
        if self._once_sink is None or self._once_sink.sink != checkpoint.query_id:
            properties = parse_sink_options(kafka_options(settings)).properties
            self._once_sink = OnceSink(properties, checkpoint.query_id, f"{self.pipeline.name}.{self.label}")
        try:
            parts = self._parts(rows, number, held)
            order = order_of(checkpoint, number)
            self._once_sink.write(order, parts, checkpoint, was_reached=number > 0)
        finally:
            for frame in held:
                frame.unpersist()

    def _parts(self, rows: DataFrame, number: int, held: list[DataFrame]) -> Iterator[Part]:
        yield from self.outputs[0].parts(rows, held)
        yield from self.outputs[0].pending_parts(rows.sparkSession, number)

    def _write_batch(self, rows: DataFrame, number: int) -> None:
        if self.is_once:
            self._write_once(rows, number)
        elif refused := self.outputs[0].write(rows, number):
            self.refused[number] = refused

    @property
    def is_active(self) -> bool:
        return self._query is not None and self._query.isActive

    @property
    def activity(self) -> str:
        """The work that the query is busy with; empty while it waits for records."""
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
            found += self._progress_of_batch(facts)
        return found

    def _progress_of_batch(self, facts: dict[str, Any]) -> list[BatchProgress]:
        """One for each output; `facts` is Spark's own report."""
        unmet = unmet_of(self.pipeline, observed_unmet(facts))
        return [batch_progress(self.pipeline.name, self.label, self.identity.kind, facts, unmet)]

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
