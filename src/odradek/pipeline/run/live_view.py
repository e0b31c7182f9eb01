"""The display of a run at a terminal: a table that is updated in place. Only this module needs rich."""

from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from odradek.pipeline.run.display import count_failure
from odradek.pipeline.run.metrics import Metrics
from odradek.pipeline.run.progress import BatchProgress
from odradek.pipeline.run.running import Events


class LiveView(Events):
    """Messages scroll above; below, a line for every query."""

    def __init__(self, metrics: Metrics, console: Console | None = None) -> None:
        self._metrics = metrics
        self._console = console or Console()
        self._newest: dict[tuple[str, str], BatchProgress] = {}
        self._totals: dict[tuple[str, str], list[int]] = {}
        self._live = Live(self._table(), console=self._console, refresh_per_second=4)

    def __enter__(self) -> "LiveView":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.update(self._table())
        self._live.stop()

    def message(self, pipeline: str, text: str, **facts: Any) -> None:
        count_failure(self._metrics, pipeline, facts)
        style = {"error": "red", "failure": "yellow", "outage": "yellow"}.get(str(facts.get("kind")))
        self._console.print(f"{pipeline}: {text}", style=style, highlight=False, markup=False)

    def batch(self, progress: BatchProgress) -> None:
        self._metrics.take(progress)
        key = (progress.pipeline, progress.query)
        self._newest[key] = progress
        totals = self._totals.setdefault(key, [0, 0])
        totals[0] += progress.rows_in
        totals[1] += (progress.rejected if progress.rejected is not None else progress.rows_out) or 0
        self._live.update(self._table())

    def rows(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    def _table(self) -> Table:
        table = Table(
            "pipeline", "query", "batch", "rows in", "rows out", "rows/s", "lag", "batch time", "most of it"
        )
        for key, newest in self._newest.items():
            seconds = max(newest.duration_ms, 1) / 1000
            slowest = max(newest.phases_ms.items(), key=lambda phase: phase[1], default=("", 0))
            lag = ", ".join(f"{topic} {waiting:,}" for topic, waiting in newest.lag.items())
            table.add_row(
                *key,
                str(newest.batch),
                f"{self._totals[key][0]:,}",
                f"{self._totals[key][1]:,}",
                f"{newest.rows_in / seconds:,.0f}",
                lag or "-",
                f"{seconds:.1f} s",
                f"{slowest[0]} {slowest[1] / 1000:.1f} s",
            )
        return table
