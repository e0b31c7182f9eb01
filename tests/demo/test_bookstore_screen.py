"""Tests of what is written to the screen, at a terminal and elsewhere."""

import io
import json
from typing import Any

import pytest

from tools.bookstore.progress import PipelineProgress
from tools.bookstore.screen import BOLD, Screen

DEFINITION = {"sources": {"orders": {}}, "transforms": {"sales": {"require": {}}}, "sinks": {"revenue": {}}}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def batch(query: str, **facts: Any) -> str:
    common = {"event": "batch", "query": query, "kind": "sink", "duration_ms": 1500, "rejected": None}
    return json.dumps({**common, **facts})


def test_elsewhere_than_at_a_terminal_nothing_is_coloured_or_rewritten() -> None:
    out = io.StringIO()
    screen = Screen(out)
    screen.progress("half done")
    screen.line("done", BOLD)
    assert out.getvalue() == "done\n"


def test_progress_is_rewritten_in_place_and_gives_way_to_a_line() -> None:
    out, clock = Terminal(), Clock()
    screen = Screen(out, clock)
    screen.progress("first")
    screen.progress("too soon to be seen")
    clock.now_s += 1
    screen.progress("second")
    screen.line("done")
    assert "too soon" not in out.getvalue()
    assert out.getvalue().count("\r\x1b[K") == 3
    assert out.getvalue().endswith("\r\x1b[Kdone\n")


def test_colours_can_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Screen(Terminal()).paint("done", BOLD) == "\x1b[1mdone\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Screen(Terminal()).paint("done", BOLD) == "done"


def test_a_pipeline_tells_a_line_for_each_query_that_read_something() -> None:
    out = io.StringIO()
    progress = PipelineProgress(Screen(out), DEFINITION)
    progress.take(
        json.dumps({"event": "message", "message": "revenue → topic", "guarantee": "at least once"})
    )
    progress.take(batch("revenue", rows_in=0, rows_out=0))
    progress.take(batch("revenue", rows_in=4676, rows_out=59))
    progress.take(
        batch("rejects of orders", kind="decode", rows_in=4676, rows_out=4676, rejected=1, duration_ms=20)
    )
    progress.take(
        json.dumps({"event": "message", "message": "revenue: failed, trying again", "kind": "failure"})
    )
    assert out.getvalue().splitlines() == [
        "  revenue                4,676 rows in     59 rows out     1.5 s",
        "  rejects of orders      4,676 rows in      1 rejected     20 ms",
        "  revenue: failed, trying again",
    ]


def test_a_pipeline_counts_its_queries() -> None:
    out, clock = Terminal(), Clock()
    progress = PipelineProgress(Screen(out, clock), DEFINITION, clock)
    progress.tick()
    assert out.getvalue().endswith("░░░░░░ 0 of 3 queries, 0 s: Spark is starting")
    clock.now_s += 7
    progress.take(json.dumps({"event": "message", "message": "revenue: starting its query"}))
    progress.take(batch("revenue", rows_in=1, rows_out=1))
    progress.tick()
    assert out.getvalue().endswith("██░░░░ 1 of 3 queries, 7 s: revenue: starting its query")
