"""The progress of a query, batch by batch, in the words of operators: rows in and out, lag, time and where it went."""

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from odradek.pipeline.kinds.file_source import NO_RECORDS
from odradek.pipeline.rows.expectations import UNMET

OBSERVED = "odradek"


@dataclass(frozen=True)
class BatchProgress:
    pipeline: str
    query: str
    kind: str
    batch: int
    time: str
    rows_in: int
    rows_out: int | None
    rejected: int | None
    duration_ms: int
    phases_ms: dict[str, int] = field(default_factory=dict)
    lag: dict[str, int] = field(default_factory=dict)
    state_rows: int = 0
    late_at_least: int = 0  # rows dropped after the watermark; Spark counts them after partial aggregation
    watermark: str | None = None
    unmet: list[dict[str, Any]] = field(
        default_factory=list
    )  # requirements that rows did not meet, and how many

    def as_json(self) -> dict[str, Any]:
        return {"event": "batch", **asdict(self)}


def batch_progress(
    pipeline: str, query: str, kind: str, progress: Any, unmet: Sequence[dict[str, Any]] = ()
) -> BatchProgress:
    """Convert Spark's own report of a batch, given as a dict."""
    metrics = progress.get("observedMetrics") or {}
    observed = _as_dict(metrics.get(OBSERVED))
    no_records = [_as_dict(found)["lines"] for name, found in metrics.items() if name.startswith(NO_RECORDS)]
    phases = {name: int(ms) for name, ms in (progress.get("durationMs") or {}).items()}
    return BatchProgress(
        pipeline=pipeline,
        query=query,
        kind=kind,
        batch=int(progress["batchId"]),
        time=progress["timestamp"],
        rows_in=max(int(progress.get("numInputRows") or 0) - sum(map(int, no_records)), 0),
        rows_out=observed.get("rows"),
        rejected=observed.get("rejected"),
        duration_ms=phases.pop("triggerExecution", 0),
        phases_ms=phases,
        lag=lag_of(progress.get("sources") or []),
        state_rows=_of_operators(progress, "numRowsTotal"),
        late_at_least=_of_operators(progress, "numRowsDroppedByWatermark"),
        watermark=(progress.get("eventTime") or {}).get("watermark"),
        unmet=[*unmet],
    )


def observed_unmet(progress: Any) -> dict[str, dict[str, Any]]:
    """Return, by transform, how many rows do not meet each of its requirements."""
    metrics = progress.get("observedMetrics") or {}
    return {
        name.removeprefix(UNMET): _as_dict(found) for name, found in metrics.items() if name.startswith(UNMET)
    }


def _of_operators(progress: Any, name: str) -> int:
    return sum(int(one.get(name) or 0) for one in progress.get("stateOperators") or [])


def _as_dict(row: Any) -> dict[str, Any]:
    return row.asDict() if hasattr(row, "asDict") else dict(row or {})


def lag_of(sources: list[Any]) -> dict[str, int]:
    """Records that wait, by topic. Sources that are not topics have none."""
    found: dict[str, int] = {}
    for source in sources:
        ends, latest = source.get("endOffset"), source.get("latestOffset")
        if isinstance(ends, dict) and isinstance(latest, dict):
            for topic, waiting in waiting_in(ends, latest).items():
                found[topic] = found.get(topic, 0) + waiting
    return found


def waiting_in(ends: dict[str, Any], latest: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for topic, partitions in latest.items():
        if not isinstance(partitions, dict) or topic.startswith("("):
            continue
        done = ends.get(topic) or {}
        found[topic] = sum(max(int(end) - int(done.get(one, 0)), 0) for one, end in partitions.items())
    return found


class RejectionLimit:
    """Counts over the newest `rows` rows, by whole batches; `exceeded` returns a message, or an empty string."""

    def __init__(self, share: float, rows: int) -> None:
        self._share, self._rows = share, rows
        self._batches: deque[tuple[int, int]] = deque()
        self._seen = self._rejected = 0

    def add(self, rows: int, rejected: int) -> None:
        self._batches.append((rows, rejected))
        self._seen += rows
        self._rejected += rejected
        while self._batches and self._seen - self._batches[0][0] >= self._rows:
            old_rows, old_rejected = self._batches.popleft()
            self._seen -= old_rows
            self._rejected -= old_rejected

    @property
    def exceeded(self) -> str:
        if self._seen < self._rows or self._rejected <= self._share * self._seen:
            return ""
        return (
            f"{self._rejected} of the last {self._seen} rows were rejected, which is more than "
            f"{self._share:.0%} (dead_letters.limit). Look at the dead letters; they can be replayed after a fix"
        )


class LongWork:
    """Decides when to tell that something takes long: after 10 s, then each time after twice as long."""

    FIRST_S = 10.0

    def __init__(self) -> None:
        self._activity, self._since_s, self._next_s = "", 0.0, self.FIRST_S

    def look(self, activity: str, now_s: float) -> float | None:
        """`activity` is empty if there is none. Returns the seconds that it has taken, if that should be told."""
        if activity != self._activity:
            self._activity, self._since_s, self._next_s = activity, now_s, self.FIRST_S
        taken_s = now_s - self._since_s
        if not activity or taken_s < self._next_s:
            return None
        self._next_s *= 2
        return taken_s
