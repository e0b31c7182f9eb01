"""The supervisor: runs pipelines until they are done, or until it is told to stop.

One loop looks at every query in turn: collects its progress, and if it ended, decides what that means
(`failures`). It waits during an outage; a sink that fails is retried after growing pauses; records that a
query fails on become dead letters; an error that no retry can change ends its pipeline, and only that. Each pipeline
has its own fair pool in Spark's scheduler.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from odradek.pipeline.check.checking import Report, check, check_letters_topic
from odradek.pipeline.check.planning import RESET, cure, describe, plan
from odradek.pipeline.check.sharing import Shape, described, leave, shape
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.definition import WARN, Pipeline
from odradek.pipeline.file.errors import PipelineError, Unreachable
from odradek.pipeline.kinds.registry import sink_kinds
from odradek.pipeline.rows.decoding import explain_refusal
from odradek.pipeline.run.counting import Counting
from odradek.pipeline.run.failures import Backoff, Failure, Kind, classify
from odradek.pipeline.run.isolation import TooMany
from odradek.pipeline.run.outputs import QueryId, rejects_of
from odradek.pipeline.run.progress import BatchProgress, LongWork, RejectionLimit
from odradek.pipeline.run.queries import Query
from odradek.pipeline.run.setting_aside import records_that_fail, set_aside
from odradek.pipeline.run.shared_query import SharedQuery
from odradek.pipeline.session import connection_lost, java_ended

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 0.2
ONCE_RETRIES = 5
JAVA_END_S = 5.0  # how long a process may take to end after its connections are gone


class Events:
    """The events that a run reports; a display overrides this."""

    def message(self, pipeline: str, text: str, **facts: Any) -> None: ...

    def batch(self, progress: BatchProgress) -> None: ...

    def rows(self, text: str) -> None: ...


@dataclass
class Supervised:
    query: Query
    limits: dict[str, RejectionLimit] = field(default_factory=dict)  # by output
    backoff: Backoff = field(default_factory=Backoff)
    retry_at_s: float | None = None
    done: bool = False
    told_of_late: bool = False
    told_of_unmet: set[tuple[str, ...]] = field(default_factory=set)
    long_work: LongWork = field(default_factory=LongWork)


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
        self._counting = Counting(
            pipeline, lambda text: events.message(pipeline.name, text, kind="unmet"), clock
        )
        self._sinks = sink_kinds(pipeline)
        self.queries: list[Supervised] = []
        self.problem: str | None = None
        self.is_paused = False

    # Life

    def prepare(self) -> Report:
        """Check everything, create the declared topics, store what will run."""
        self.events.message(self.pipeline.name, "checking the file, topics, sinks and the checkpoint")
        report = check(self.spark, self.pipeline)
        for change in plan(self.spark, report):
            if change.verdict == RESET:
                problem = f"{change.reasons[0]}. {cure(self.pipeline, change.sink)}"
                raise self.pipeline.error(("sinks", change.sink), problem)
        for sink in self._sinks.values():
            sink.check_declared(create=True)
        check_letters_topic(self.pipeline, create=True)
        queries = self._new_queries(self._shape(report), report.named)
        self.queries = [self.supervised(query) for query in queries]
        return report

    def _shape(self, report: Report) -> Shape:
        """Decide which outputs share a query, and store that before anything runs."""
        found = shape(self.pipeline, report.stages, report.may_share, self.checkpoint)
        before = self.checkpoint.groups()
        leave(self.pipeline, report.stages, found, self.checkpoint)
        self.checkpoint.write_manifest(describe(self.spark, report) | {"groups": described(found)})
        for name in {group.name for group in before} - {group.name for group in found.groups}:
            self.checkpoint.remove_query("group", name)
        return found

    def supervised(self, query: Query) -> Supervised:
        """Each output has its own limit: rows that others accept do not reduce its share of rejections."""
        letters = self.pipeline.dead_letters
        if letters is None:
            return Supervised(query)
        limits = {one.label: RejectionLimit(letters.limit, letters.limit_rows) for one in query.outputs}
        return Supervised(query, limits)

    def _new_queries(self, found: Shape, named: Mapping[str, bool]) -> list[Query]:
        """In the order in which they start: rows first, queries that only write rejected rows last."""
        spark, pipeline, once, show = self.spark, self.pipeline, self.once, self.events.rows
        queries: list[Query] = [
            SharedQuery(spark, pipeline, group, once=once, show=show, sinks=self._sinks)
            for group in found.groups
        ]
        for name in found.sinks:
            sink, identity = self._sinks[name], QueryId("sink", name)
            queries.append(
                Query(spark, pipeline, identity, once=once, show=show, sink=sink, named=named.get(name))
            )
        queries += [
            Query(spark, pipeline, rejects_of(pipeline, name), once=once, show=show) for name in found.rejects
        ]
        return sorted(queries, key=lambda query: all(one.sink is None for one in query.outputs))

    def start(self) -> None:
        for name, sink in self._sinks.items():
            text = f"{name} → {sink.destination}, {sink.sink.mode}: {sink.guarantee}"
            self.events.message(self.pipeline.name, text, sink=name, guarantee=sink.guarantee)
            self._counting.take(name)
        for supervised in self.queries:
            self._start(supervised)

    def _start(self, supervised: Supervised) -> None:
        supervised.retry_at_s, supervised.long_work = None, LongWork()
        if self.problem is not None:
            return
        label = supervised.query.label
        self.events.message(self.pipeline.name, f"{label}: starting its query", query=label)
        try:
            supervised.query.start()
        except Unreachable as error:
            self._retry(supervised, Failure(Kind.OTHER, error.text()))
        except PipelineError as error:
            self._give_up(error.text())
        except Exception as error:  # Spark's, or Java's through py4j
            self._judge(supervised, error)

    @property
    def is_over(self) -> bool:
        return self.problem is not None or all(one.done for one in self.queries)

    def look(self) -> None:
        """Collect progress, and handle queries that have ended."""
        if self.has_lost_java() or self._follow_pause():
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
            else:
                self._tell_of_long_work(supervised)
        self._counting.send(is_last=self.is_over)

    def _tell_of_long_work(self, supervised: Supervised) -> None:
        activity = supervised.query.activity if not supervised.done else ""
        seconds = supervised.long_work.look(activity, self._clock())
        if seconds is not None:
            label = supervised.query.label
            text = f"{label}: {activity}, for {seconds:.0f} s now"
            self.events.message(self.pipeline.name, text, query=label)

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
                text = f"{supervised.query.label}: did not stop: {error}"
                self.events.message(self.pipeline.name, text, kind="error")
            if not supervised.done:
                self._take_progress(supervised)
        self._counting.send(is_last=True)

    def abandon(self, error: Exception) -> None:
        """An unexpected error. It ends only this pipeline."""
        if connection_lost(error) and self.has_lost_java(JAVA_END_S):
            return
        self._give_up(f"{type(error).__name__}: {error}")

    def has_lost_java(self, wait_s: float = 0.0) -> bool:
        """True if Spark's Java process is gone; the pipeline has ended then. There is no query left to stop."""
        ended = java_ended(wait_s)
        if ended is not None and self.problem is None:
            log = self.checkpoint.log_file
            self.problem = f"{ended}. Spark's log is {log}" if log.exists() else ended
            self.events.message(self.pipeline.name, f"stopped: {self.problem}", kind="error")
        return ended is not None

    def _take_progress(self, supervised: Supervised) -> None:
        for progress in supervised.query.new_progress():
            supervised.backoff.reset()
            self.events.batch(progress)
            self._count_late(supervised, progress)
            self._count_unmet(supervised, progress)
            if (limit := supervised.limits.get(progress.query)) is not None:
                rejected = (progress.rejected or 0) + supervised.query.refused.pop(progress.batch, 0)
                limit.add(progress.rows_out or 0, rejected)
        for label, limit in supervised.limits.items():
            if limit.exceeded and self.problem is None:
                self._give_up(f"{label}: {limit.exceeded}")

    def _count_late(self, supervised: Supervised, progress: BatchProgress) -> None:
        if not progress.late_at_least:
            return
        identity = supervised.query.identity
        self.checkpoint.add_late(identity.kind, identity.name, progress.batch, progress.late_at_least)
        if not supervised.told_of_late:
            supervised.told_of_late = True
            text = (
                f"{identity.label}: at least {progress.late_at_least} row(s) came after the watermark, "
                f"{progress.watermark}, and were dropped; a longer watermark.delay would keep them"
            )
            self.events.message(self.pipeline.name, text, kind="late", query=identity.label)

    def _count_unmet(self, supervised: Supervised, progress: BatchProgress) -> None:
        if not progress.unmet:
            return
        self.checkpoint.add_unmet(progress.kind, progress.query, progress.batch, progress.unmet)
        self._counting.take(progress.query)
        for one in progress.unmet:
            place = (progress.query, one["stage"], one["requirement"])
            if one["action"] == WARN and place not in supervised.told_of_unmet:
                supervised.told_of_unmet.add(place)
                text = (
                    f"{progress.query}: {one['rows']} row(s) of {one['stage']} do not meet "
                    f"'{one['requirement']}'; they are kept, and further ones are only counted"
                )
                self.events.message(self.pipeline.name, text, kind="unmet", query=progress.query)

    def _ended(self, supervised: Supervised) -> None:
        failure = supervised.query.failure()
        if failure is None:
            supervised.done = True
        else:
            self._judge(supervised, failure)

    # Failures

    def _judge(self, supervised: Supervised, error: Exception) -> None:
        if connection_lost(error) and self.has_lost_java(JAVA_END_S):
            return
        failure = classify(error)
        if failure.kind is Kind.PERMANENT:
            self._give_up(f"{supervised.query.blamed}: {self._permanent(supervised, failure)}")
        elif failure.kind is Kind.DATA:
            self._set_aside(supervised, failure)
        else:
            self._retry(supervised, failure)

    def _permanent(self, supervised: Supervised, failure: Failure) -> str:
        if not failure.needs_reset:
            return failure.reason
        identity = supervised.query.identity
        what_to_do = cure(self.pipeline, identity.name if identity.kind == "sink" else None)
        return f"the checkpoint does not fit the query: {failure.reason}. {what_to_do}"

    def _retry(self, supervised: Supervised, failure: Failure) -> None:
        pause_s = supervised.backoff.next_s()
        label = supervised.query.blamed
        is_outage = failure.kind is Kind.OUTAGE
        if self._retries is not None and supervised.backoff.failures > self._retries:
            self._give_up(
                f"{label}: failed {supervised.backoff.failures} times, the last time with: {failure.reason}"
            )
            return
        what = "waiting for brokers" if is_outage else "failed"
        text = f"{label}: {what}, trying again in {pause_s:g} s: {failure.reason}"
        kind = "outage" if is_outage else "failure"
        self.events.message(
            self.pipeline.name, text, kind=kind, retry_s=pause_s, query=supervised.query.label
        )
        supervised.retry_at_s = self._clock() + pause_s

    def _give_up(self, problem: str) -> None:
        self.problem = problem
        self.events.message(self.pipeline.name, f"stopped: {problem}", kind="error")
        self.stop()

    def _set_aside(self, supervised: Supervised, failure: Failure) -> None:
        """Find the records that the query failed on, make dead letters of them, and continue without them."""
        query, label = supervised.query, supervised.query.blamed
        if self.pipeline.dead_letters is None:
            hint = "" if "Declare" in failure.reason else ". Declare [dead_letters] to set such records aside"
            reason = explain_refusal(self.pipeline, failure.reason)
            return self._give_up(f"{label}: {reason.rstrip('.')}{hint}")
        text = f"{label}: looking for the records it failed on: {failure.reason}"
        self.events.message(self.pipeline.name, text)
        try:
            found = records_that_fail(query)
            for identity, records in found.items():
                set_aside(self.spark, query, identity, records)
        except TooMany as error:
            return self._give_up(f"{label}: {error}")
        except Unreachable as error:  # a registry, for example
            return self._retry(supervised, Failure(Kind.OTHER, error.text()))
        except PySparkException as error:  # not about data: brokers may be unreachable right now
            return self._retry(supervised, classify(error))
        if not found:
            text = f"{label}: {failure.reason}; no single record of a topic was found to be the cause"
            return self._give_up(text)
        for identity, records in found.items():
            count = len(records)
            text = f"{identity.label}: set {count} record{'s' if count > 1 else ''} aside as dead letters"
            self.events.message(self.pipeline.name, text, kind="rejected", rejected=count)
            if (limit := supervised.limits.get(identity.label)) is not None:
                limit.add(count, count)
        return self._start(supervised)


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
