"""The lag of Spark's streaming queries behind the ends of their topics.

Spark reports, with every batch, where a source has read to (`endOffset`) and where its topics end
(`latestOffset`); their difference is the lag. A listener keeps the newest of each query and reports it in the log
and, in Prometheus' text format, over HTTP:

    listener = LagListener()
    listener.serve(9404)  # http://127.0.0.1:9404/metrics, if you want it
    spark.streams.addListener(listener)

It understands the offsets of our source and of Spark's own Kafka source, which are written alike. A query that
waits, for rows or for a broker, reports nothing new and keeps its last numbers; one that ended has none.
"""

import json
import logging
import threading
import time
from collections.abc import Callable

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from odradek.exposition import Labels, serve, written
from odradek.model import TopicPartition
from odradek.spark.offsets import Offsets, from_checkpoint

METRIC = "odradek_spark_lag_records"
ABOUT = "Records that a streaming query has not read yet, by partition."
LOG_INTERVAL_S = 10.0
MOST_NAMED = 3

log = logging.getLogger("odradek.spark.lag")


def lag_of(end: Offsets, latest: Offsets) -> Offsets:
    """Unread records of each partition. If it was not read yet, all of its records."""
    return {partition: max(0, offset - end.get(partition, 0)) for partition, offset in latest.items()}


def parse_progress_offsets(text: str | None) -> Offsets | None:
    """Offsets in a progress report; None if a source has none, or is of another kind."""
    try:
        return from_checkpoint(json.loads(text or "null"))
    except (ValueError, AttributeError, TypeError):
        return None


class LagListener(StreamingQueryListener):
    """`lags` maps the names of running queries (their ids, where they have no name) to their lags."""

    def __init__(
        self, log_interval_s: float = LOG_INTERVAL_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log_interval_s, self._clock = log_interval_s, clock
        self._names: dict[str, str] = {}  # of queries, by run id
        self._lags: dict[str, Offsets] = {}
        self._logged_at_s: dict[str, float] = {}
        self._lock = threading.Lock()

    @property
    def lags(self) -> dict[str, dict[TopicPartition, int]]:
        with self._lock:
            return {name: dict(lag) for name, lag in self._lags.items()}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        lag: Offsets = {}
        for source in progress.sources:
            end = parse_progress_offsets(source.endOffset)
            latest = parse_progress_offsets(source.latestOffset)
            if end is not None and latest is not None:
                lag |= lag_of(end, latest)
        self.update(progress.name or str(progress.id), str(progress.runId), lag)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._lock:
            name = self._names.pop(str(event.runId), None)
            if name is not None:
                self._lags.pop(name, None)
                self._logged_at_s.pop(name, None)

    def update(self, name: str, run_id: str, lag: Offsets) -> None:
        now_s = self._clock()
        with self._lock:
            self._names[run_id] = name
            self._lags[name] = lag
            is_due = now_s - self._logged_at_s.get(name, float("-inf")) >= self._log_interval_s
            if is_due:
                self._logged_at_s[name] = now_s
        if is_due:
            log.info("query %s is %s", name, describe_lag(lag))

    def metrics(self) -> str:
        """All lags in Prometheus' text format."""
        lags: dict[Labels, float] = {
            (("query", name), ("topic", partition.topic), ("partition", str(partition.partition))): records
            for name, lag in self.lags.items()
            for partition, records in lag.items()
        }
        return written(METRIC, "gauge", ABOUT, lags)

    def serve(self, port: int = 0, host: str = "127.0.0.1") -> int:
        """Serve `metrics` over HTTP until the process ends; returns the port, which the system may choose."""
        return serve(self.metrics, host, port).server_port


def describe_lag(lag: Offsets) -> str:
    """`not behind`, or by how much and where most."""
    behind = sorted(((records, partition) for partition, records in lag.items() if records), reverse=True)
    if not behind:
        return "not behind"
    named = ", ".join(f"{partition} by {records}" for records, partition in behind[:MOST_NAMED])
    rest = f" and {len(behind) - MOST_NAMED} more partitions" if len(behind) > MOST_NAMED else ""
    return f"{sum(records for records, _ in behind)} records behind: {named}{rest}"
