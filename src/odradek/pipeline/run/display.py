"""The output of a run without a terminal: JSON lines. `live_view` is for terminals."""

import json
import sys
import threading
from datetime import UTC, datetime
from typing import Any, TextIO

from odradek.pipeline.run.metrics import Metrics
from odradek.pipeline.run.progress import BatchProgress
from odradek.pipeline.run.running import Events


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class JsonLines(Events):
    """One line for everything that happens. Rows of the console sink go to standard output too, as text in JSON."""

    def __init__(self, metrics: Metrics, out: TextIO | None = None) -> None:
        self._metrics, self._out = metrics, out or sys.stdout
        self._lock = threading.Lock()

    def message(self, pipeline: str, text: str, **facts: Any) -> None:
        count_failure(self._metrics, pipeline, facts)
        self._write({"event": "message", "time": _now(), "pipeline": pipeline, "message": text, **facts})

    def batch(self, progress: BatchProgress) -> None:
        self._metrics.take(progress)
        self._write(progress.as_json())

    def rows(self, text: str) -> None:
        self._write({"event": "rows", "time": _now(), "rows": text})

    def _write(self, facts: dict[str, Any]) -> None:
        with self._lock:
            self._out.write(json.dumps(facts, ensure_ascii=False) + "\n")
            self._out.flush()


def count_failure(metrics: Metrics, pipeline: str, facts: dict[str, Any]) -> None:
    if facts.get("kind") in ("failure", "outage"):
        metrics.add("odradek_pipeline_failures_total", 1, pipeline=pipeline, kind=str(facts["kind"]))
