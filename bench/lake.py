"""Lake tables beside Spark's own Parquet sink, in turn: appended batches, and an upsert beside a full rewrite.

**Append.** A pipeline copies a topic of JSON events to Parquet files (Spark's sink), to a Delta table and to an Iceberg
table, each in batches of the same size; the figure is rows a second over Spark's own time of the batches
(`triggerExecution`) without the first one, which starts workers. Must reach: 0.9 of Spark's Parquet sink.

**Upsert.** 100,000 keys into a Delta table of 10 million rows, keys scattered over the whole table or all of its newest
ones, beside Spark reading the table and writing all of it anew as Parquet.

    python -m bench.spark --only lake
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import pipeline
from odradek.pipeline.file.definition import Upsert
from odradek.pipeline.file.reading import load
from odradek.pipeline.kinds.lake.delta import DELETED, DeltaLakeTable
from odradek.pipeline.kinds.lake.files import write_files
from odradek.pipeline.kinds.lake.order import Order
from odradek.pipeline.run.progress import BatchProgress
from odradek.pipeline.run.running import Events, PipelineRun, Supervisor

if TYPE_CHECKING:
    from bench.spark import Bench

ROUNDS, BATCHES = 3, 6
KEYS = 100_000
ROWS_PER_KEY = 100  # of the table
SINKS = {
    "Spark's Parquet sink": 'path = "files"',
    "Delta": 'path = "delta"\nformat = "delta"',
    "Iceberg": 'table = "shop.events"',
}
FILE = """
[kafka]
"bootstrap.servers" = "{bootstrap}"
[sources.events]
topic = "{topic}"
schema = "{schema}"
max_rows_per_batch = {rows}
[sinks.out]
from = "events"
{sink}
"""
SCHEMA = "id BIGINT, kind STRING, amount DOUBLE, at TIMESTAMP"


class Batches(Events):
    def __init__(self) -> None:
        self.found: list[BatchProgress] = []

    def batch(self, progress: BatchProgress) -> None:
        self.found.append(progress)


def lake(bench: "Bench") -> list[str]:
    """Prints and returns the lines of two tables."""
    return [*appends(bench), "", *upserts(bench)]


def appends(bench: "Bench") -> list[str]:
    rows = max(bench.rows // 5, BATCHES)
    topic = bench.new_topic()
    bench.write("odradek", pipeline.event_frame(bench.spark, rows), topic, {})
    rates: dict[str, list[float]] = {name: [] for name in SINKS}
    for _ in range(ROUNDS):
        for name, sink in SINKS.items():
            rates[name].append(appended(bench, topic, rows // BATCHES, sink))
    lines = [
        f"| append, {rows:,} rows in {BATCHES} batches | rows/s | beside Spark's Parquet sink |",
        "|---|---|---|",
    ]
    base = statistics.median(rates["Spark's Parquet sink"])
    lines += [
        f"| {name} | {spread(found)} | {statistics.median(found) / base:.2f} |"
        for name, found in rates.items()
    ]
    return shown(lines)


def appended(bench: "Bench", topic: str, rows: int, sink: str) -> float:
    """Rows a second."""
    with tempfile.TemporaryDirectory() as directory:
        path, events = Path(directory) / "bench.toml", Batches()
        text = FILE.format(bootstrap=bench.bootstrap, topic=topic, schema=SCHEMA, rows=rows, sink=sink)
        path.write_text(text)
        run = PipelineRun(bench.spark, load(path), events, once=True)
        run.prepare()
        Supervisor([run]).run()
        assert run.problem is None, run.problem
        later = events.found[1:]
        return sum(one.rows_out or 0 for one in later) / (sum(one.duration_ms for one in later) / 1000)


def upserts(bench: "Bench") -> list[str]:
    rows = bench.rows * 2
    keys = min(KEYS, max(rows // ROWS_PER_KEY, 1))
    ways: dict[str, Callable[[DeltaLakeTable, int, int], Any]] = {
        "MERGE, scattered keys": lambda table, count, turn: merge(
            bench, table, turn, changes(count, keys, 1)
        ),
        "MERGE, the newest keys": lambda table, count, turn: merge(
            bench, table, turn, changes(count, keys, 0)
        ),
        "all rows read and written by Spark": lambda table, count, turn: rewrite(bench, table, count, keys),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as directory:
        table = filled_table(bench, directory, rows)
        for turn in range(ROUNDS):
            for number, (name, way) in enumerate(ways.items()):
                start = time.perf_counter()
                way(table, rows, 1 + turn * len(ways) + number)
                found[name].append(time.perf_counter() - start)
    lines = [f"| upsert of {keys:,} keys into {rows:,} rows | s |", "|---|---|"]
    return shown(lines + [f"| {name} | {spread(times, 2)} |" for name, times in found.items()])


def filled_table(bench: "Bench", directory: str, rows: int) -> DeltaLakeTable:
    frame = bench.spark.range(0, rows, 1, 8).selectExpr(*COLUMNS)
    table = DeltaLakeTable(directory, {})
    table.look()
    table.create(frame.schema, ())
    table.look()
    table.append(write_files(frame, table.target()), order(0))
    return table


COLUMNS = ("id", "concat('item ', id % 1000) AS item", "id / 7D AS amount", "0L AS changed")


def changes(rows: int, keys: int, scattered: int) -> tuple[str, int]:
    """The expression of a key, by `id` from 0 to `keys`."""
    return (f"id * {rows // keys}" if scattered else f"id + {rows - keys}"), keys


def merge(bench: "Bench", table: DeltaLakeTable, turn: int, chosen: tuple[str, int]) -> None:
    key, keys = chosen
    values = (f"{key} AS id", "'new' AS item", "1D AS amount", f"{turn}L AS changed", f"false AS {DELETED}")
    rows = bench.spark.range(keys).selectExpr(*values).toArrow()
    table.look()
    table.merge(rows, Upsert(("id",), (), ""), order(turn))


def rewrite(bench: "Bench", table: DeltaLakeTable, rows: int, keys: int) -> None:
    from deltalake import DeltaTable

    key, _ = changes(rows, keys, 1)
    fresh = bench.spark.range(keys).selectExpr(
        f"{key} AS id", "'new' AS item", "1D AS amount", "0L AS changed"
    )
    old = bench.spark.read.parquet(*DeltaTable(table.place).file_uris())
    with tempfile.TemporaryDirectory() as directory:
        kept = old.join(fresh, "id", "left_anti")
        kept.unionByName(fresh).write.mode("overwrite").parquet(directory)


def order(batch: int) -> Order:
    return Order("bench", batch, f"{batch:015x}")


def spread(found: list[float], digits: int = 0) -> str:
    low, middle, high = min(found), statistics.median(found), max(found)
    return f"{middle:,.{digits}f} ({low:,.{digits}f}–{high:,.{digits}f})"


def shown(lines: list[str]) -> list[str]:
    print("\n".join(lines), flush=True)
    return lines
