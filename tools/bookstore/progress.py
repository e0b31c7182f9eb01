"""Shows what `odradek pipeline run` tells in JSON lines: a line for each query that has read something."""

import json
import time
from collections.abc import Callable
from typing import Any

from .drawing import gauge
from .screen import DIM, RED, Screen


class PipelineProgress:
    """`definition` is the pipeline's file: from it comes how many queries there will be."""

    def __init__(
        self, screen: Screen, definition: dict[str, Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._screen, self._clock, self._began_s = screen, clock, clock()
        judged = [one for one in definition["transforms"].values() if "require" in one]
        self._queries = len(definition["sinks"]) + len(definition["sources"]) + len(judged)
        self._seen: set[str] = set()
        self._has_spark = False

    def take(self, line: str) -> None:
        facts = json.loads(line)
        self._has_spark = True
        if facts["event"] == "batch" and facts["rows_in"]:
            self._seen.add(facts["query"])
            self._screen.lines([self._batch(facts)])
        elif facts.get("kind") in ("failure", "outage", "error"):
            self._screen.lines([facts["message"]], RED if facts["kind"] == "error" else DIM)

    def _batch(self, facts: dict[str, Any]) -> str:
        is_sink = facts["kind"] == "sink"
        out, word = (facts["rows_out"], "rows out") if is_sink else (facts["rejected"], "rejected")
        seconds = facts["duration_ms"] / 1000
        return (
            f"{facts['query']:<20} {facts['rows_in']:>7,} rows in {out or 0:>6,} {word:<9} {seconds:>6.1f} s"
        )

    def tick(self) -> None:
        seconds = f"{self._clock() - self._began_s:.0f} s"
        state = f"{len(self._seen)} of {self._queries} queries have read their topics"
        bar = gauge(len(self._seen), self._queries, 2 * self._queries)
        self._screen.progress(f"{bar} {state if self._has_spark else 'Spark is starting'}, {seconds}")
