"""Shows what `odradek pipeline run` tells in JSON lines: a line for each query that has read something."""

import json
import time
from collections.abc import Callable
from typing import Any

from .drawing import gauge, seconds
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
        self._doing = "Spark is starting"

    def take(self, line: str) -> None:
        facts = json.loads(line)
        if facts["event"] == "batch" and facts["rows_in"]:
            self._seen.add(facts["query"])
            self._screen.lines([self._batch(facts)])
        elif facts.get("kind") in ("failure", "outage", "error"):
            self._screen.lines([facts["message"]], RED if facts["kind"] == "error" else DIM)
        elif "message" in facts:
            self._doing = facts["message"]

    def _batch(self, facts: dict[str, Any]) -> str:
        is_sink = facts["kind"] == "sink"
        out, word = (facts["rows_out"], "rows out") if is_sink else (facts["rejected"], "rejected")
        took = seconds(facts["duration_ms"] / 1000)
        return f"{facts['query']:<20} {facts['rows_in']:>7,} rows in {out or 0:>6,} {word:<9} {took:>8}"

    def tick(self) -> None:
        """Show how many queries have read their topics, and what is being done now."""
        bar = gauge(len(self._seen), self._queries, 2 * self._queries)
        took = f"{self._clock() - self._began_s:.0f} s"
        self._screen.progress(f"{bar} {len(self._seen)} of {self._queries} queries, {took}: {self._doing}")
