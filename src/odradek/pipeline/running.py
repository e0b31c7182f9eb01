"""The supervisor: runs pipelines until they are done, or until it is told to stop.

One loop looks at every query in turn: collects its progress, and if it ended, decides what that means
(`failures`). It waits during an outage; a sink that fails is retried after growing pauses; records that a
query fails on become dead letters; an error that no retry can change ends its pipeline, and only that. Each pipeline
has its own fair pool in Spark's scheduler.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from odradek.pipeline import topics
from odradek.pipeline.checking import Report, check, declared_topics
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.dead_letters import record_letters, write_letters
from odradek.pipeline.definition import Pipeline, TopicSink
from odradek.pipeline.errors import PipelineError, Unreachable
from odradek.pipeline.failures import Backoff, Failure, Kind, classify
from odradek.pipeline.isolation import BadRecord, TooMany, batch_in_flight, isolate
from odradek.pipeline.planning import RESET, describe, plan
from odradek.pipeline.progress import BatchProgress, RejectionLimit
from odradek.pipeline.queries import Query, QueryId, queries_of
from odradek.pipeline.sinks import SINK_MARK, destination, guarantee
from odradek.pipeline.weaving import BatchReader, graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 0.2
ONCE_RETRIES = 5


class Events:
    """What a run reports; a display overrides this."""

    def message(self, pipeline: str, text: str, **facts: Any) -> None: ...

    def batch(self, progress: BatchProgress) -> None: ...

    def rows(self, text: str) -> None: ...


@dataclass
class Supervised:
    query: Query
    limit: RejectionLimit | None = None
    backoff: Backoff = field(default_factory=Backoff)
    retry_at_s: float | None = None
    done: bool = False


class PipelineRun:
    """One pipeline and its queries."""

    def __init__(
        self,
        spark: "SparkSession",
        pipeline: Pipeline,
        events: Events,
        *,
        once: bool,
        retries: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spark, self.pipeline, self.events, self.once = spark, pipeline, events, once
        self._retries = retries if retries is not None else (ONCE_RETRIES if once else None)
        self._clock = clock
        self.checkpoint = Checkpoint(pipeline)
        self.queries: list[Supervised] = []
        self.problem: str | None = None
        self.is_paused = False

    # Life

    def prepare(self) -> Report:
        """Check everything, create the declared topics, store what will run."""
        report = check(self.spark, self.pipeline)
        for change in plan(self.spark, report):
            if change.verdict == RESET:
                problem = (
                    f"{change.reasons[0]}. Start over with 'odradek pipeline reset {self.pipeline.document.path} "
                    f"--sink {change.sink}', or undo the edit"
                )
                raise self.pipeline.error(("sinks", change.sink), problem)
        views = {
            declaration.topic: topics.check_declaration(self.pipeline, key, declaration, create=True)
            for key, declaration in declared_topics(self.pipeline)
        }
        self.checkpoint.write_manifest(describe(self.spark, report))
        stages = graph(self.spark.newSession(), self.pipeline)
        needed: set[str] = set()
        for sink in self.pipeline.sinks.values():
            needed |= stages.needed_by(sink.input)
        for identity in queries_of(self.pipeline, needed):
            self.queries.append(Supervised(self._query(identity, views), self._new_limit()))
        return report

    def _new_limit(self) -> RejectionLimit | None:
        """Of one query: rows that others accept do not reduce its share of rejections."""
        letters = self.pipeline.dead_letters
        return None if letters is None else RejectionLimit(letters.limit, letters.limit_rows)

    def _query(self, identity: QueryId, views: dict[str, Any]) -> Query:
        size = None
        if identity.kind == "sink":
            target = self.pipeline.sinks[identity.name].target
            if isinstance(target, TopicSink):
                view = views.get(target.declaration.topic)
                size = None if view is None else view.max_message_bytes
        return Query(
            self.spark,
            self.pipeline,
            identity,
            once=self.once,
            show=self.events.rows,
            message_bytes=size,
        )

    def start(self) -> None:
        for sink in self.pipeline.sinks.values():
            text = f"{sink.name} → {destination(sink)}, {sink.mode}: {guarantee(sink)}"
            self.events.message(self.pipeline.name, text, sink=sink.name, guarantee=guarantee(sink))
        for supervised in self.queries:
            self._start(supervised)

    def _start(self, supervised: Supervised) -> None:
        supervised.retry_at_s = None
        if self.problem is not None:
            return
        try:
            supervised.query.start()
        except Unreachable as error:
            self._retry(supervised, Failure(Kind.OTHER, error.text()))
        except PipelineError as error:
            self._give_up(error.text())
        except Exception as error:  # Spark's, or Java's through py4j
            self._judge(supervised, str(error))

    @property
    def is_over(self) -> bool:
        return self.problem is not None or all(one.done for one in self.queries)

    def look(self) -> None:
        """Collect progress, and handle queries that have ended."""
        if self._follow_pause():
            return
        for supervised in self.queries:
            if self.problem is not None:
                return
            self._take_progress(supervised)
            if supervised.retry_at_s is not None:
                if self._clock() >= supervised.retry_at_s:
                    self._start(supervised)
            elif not supervised.done and not supervised.query.is_active:
                self._take_progress(supervised)
                self._ended(supervised)

    def _follow_pause(self) -> bool:
        wanted = self.checkpoint.is_paused
        if wanted and not self.is_paused:
            self.is_paused = True
            self.events.message(self.pipeline.name, "paused; 'odradek pipeline resume' resumes it")
            self.stop()
        elif not wanted and self.is_paused:
            self.is_paused = False
            self.events.message(self.pipeline.name, "resumed")
            for supervised in self.queries:
                if not supervised.done:
                    self._start(supervised)
        return self.is_paused

    def stop(self) -> None:
        for supervised in self.queries:
            try:
                supervised.query.stop()
            except Exception as error:  # Spark's timeout; the others must still be stopped
                text = f"{supervised.query.identity.label}: did not stop: {error}"
                self.events.message(self.pipeline.name, text, kind="error")
            if not supervised.done:
                self._take_progress(supervised)

    def abandon(self, error: Exception) -> None:
        """An unexpected error. It ends only this pipeline."""
        self._give_up(f"{type(error).__name__}: {error}")

    def _take_progress(self, supervised: Supervised) -> None:
        for progress in supervised.query.new_progress():
            supervised.backoff.reset()
            self.events.batch(progress)
            if supervised.limit is not None:
                rejected = (progress.rejected or 0) + supervised.query.refused.pop(progress.batch, 0)
                supervised.limit.add(progress.rows_out or 0, rejected)
        exceeded = supervised.limit.exceeded if supervised.limit is not None else ""
        if exceeded and self.problem is None:
            self._give_up(f"{supervised.query.identity.label}: {exceeded}")

    def _ended(self, supervised: Supervised) -> None:
        failure = supervised.query.failure()
        if failure is None:
            supervised.done = True
        else:
            self._judge(supervised, failure)

    # Failures

    def _judge(self, supervised: Supervised, text: str) -> None:
        failure = classify(text)
        if failure.kind is Kind.PERMANENT:
            self._give_up(f"{supervised.query.identity.label}: {failure.reason}")
        elif failure.kind is Kind.DATA:
            self._set_aside(supervised, failure)
        else:
            self._retry(supervised, failure)

    def _retry(self, supervised: Supervised, failure: Failure) -> None:
        pause_s = supervised.backoff.next_s()
        label = supervised.query.identity.label
        is_outage = failure.kind is Kind.OUTAGE
        if self._retries is not None and supervised.backoff.failures > self._retries:
            self._give_up(
                f"{label}: failed {supervised.backoff.failures} times, the last time with: {failure.reason}"
            )
            return
        what = "waiting for brokers" if is_outage else "failed"
        text = f"{label}: {what}, trying again in {pause_s:g} s: {failure.reason}"
        kind = "outage" if is_outage else "failure"
        self.events.message(self.pipeline.name, text, kind=kind, retry_s=pause_s, query=label)
        supervised.retry_at_s = self._clock() + pause_s

    def _give_up(self, problem: str) -> None:
        self.problem = problem
        self.events.message(self.pipeline.name, f"stopped: {problem}", kind="error")
        self.stop()

    def _set_aside(self, supervised: Supervised, failure: Failure) -> None:
        """Find the records that the query failed on, make dead letters of them, and continue without them."""
        query, identity = supervised.query, supervised.query.identity
        label = identity.label
        if self.pipeline.dead_letters is None or identity.kind != "sink":
            hint = "" if identity.kind != "sink" else ". Declare [dead_letters] to set such records aside"
            return self._give_up(
                f"{label}: {failure.reason.rstrip('.')}{'' if 'Declare' in failure.reason else hint}"
            )
        self.events.message(
            self.pipeline.name, f"{label}: looking for the records it failed on: {failure.reason}"
        )
        batch = batch_in_flight(self.pipeline, self.checkpoint, identity.kind, identity.name)
        try:
            found = isolate(batch, query.batch_frame, _failure_of)
        except TooMany as error:
            return self._give_up(f"{label}: {error}")
        except PySparkException as error:  # not about data: brokers may be unreachable right now
            return self._retry(supervised, classify(str(error)))
        if not found:
            text = f"{label}: {failure.reason}; no single record of a topic was found to be the cause"
            return self._give_up(text)
        try:
            for record in found:
                self._write_letter(identity, record)
                where = (record.source, record.topic, record.partition, record.offset)
                self.checkpoint.skip(identity.kind, identity.name, *where)
        except PySparkException as error:
            return self._retry(supervised, classify(str(error)))
        text = f"{label}: set {len(found)} record{'s' if len(found) > 1 else ''} aside as dead letters"
        self.events.message(self.pipeline.name, text, kind="rejected", rejected=len(found))
        if supervised.limit is not None:
            supervised.limit.add(len(found), len(found))
        return self._start(supervised)

    def _write_letter(self, identity: QueryId, record: BadRecord) -> None:
        session = self.spark.newSession()
        partition = {record.topic: {str(record.partition): record.offset}}
        end = {record.topic: {str(record.partition): record.offset + 1}}
        source = self.pipeline.sources[record.source]
        reader = BatchReader(session, self.pipeline, {source.name: partition}, {source.name: end})
        stage = "sink" if SINK_MARK in record.reason else "transform"
        reason = record.reason.replace(SINK_MARK, "sink ")
        letters = record_letters(reader.records(source), self.pipeline, stage, identity.name, F.lit(reason))
        place = f"{stage}.{identity.name}/{record.topic}-{record.partition}-{record.offset}"
        write_letters(letters, self.pipeline, place)


def _failure_of(frame: Any) -> str | None:
    """Run a batch without writing; returns why it fails, or None. Raises errors that are not about data."""
    try:
        frame.write.format("noop").mode("overwrite").save()
    except PySparkException as error:
        failure = classify(str(error))
        if failure.kind is not Kind.DATA:
            raise
        return failure.reason
    return None


class Supervisor:
    """Several pipelines in one process. If one ends, the others continue."""

    def __init__(self, runs: Sequence[PipelineRun]) -> None:
        self.runs = list(runs)
        self._stop = threading.Event()

    def request_stop(self) -> None:
        self._stop.set()

    def run(self) -> bool:
        """Runs until all have ended, or a stop is requested; returns whether all succeeded."""
        for run in self.runs:
            if not self._stop.is_set():
                self._guarded(run, run.start)
        while not self._stop.is_set() and not all(run.is_over for run in self.runs):
            for run in self.runs:
                if not run.is_over:
                    self._guarded(run, run.look)
            self._stop.wait(LOOK_S)
        for run in self.runs:
            if not run.is_over:
                run.stop()
        return all(run.problem is None for run in self.runs)

    def _guarded(self, run: PipelineRun, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            run.abandon(error)
