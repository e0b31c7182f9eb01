"""Measure what exactly once costs: a stream from topic to topic, at least once and exactly once in turn.

Large batches (100,000 rows of 100 bytes), tiny ones (4 rows), and tiny ones in 200 tasks of which 190 have no rows. The
figure of a pass is the median of Spark's own time of its batches (`triggerExecution`), without the first ones, which
start workers. Must reach: at least 0.85 of the rate at 100,000 rows, and at most 150 ms more for a tiny batch.

    python -m bench.spark --only once
"""

import shutil
import statistics
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.spark import write_exactly_once

if TYPE_CHECKING:
    from bench.runner import Run
    from bench.spark import Bench

LARGE, TINY = 100_000, 4
ROUNDS = 5
IN_MANY_TASKS = 200
AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once_ms", "exactly_once_ms"
SYSTEM = "odradek"


class Load(NamedTuple):
    title: str
    rows: int  # of a batch
    batches: int
    left_out: int  # first ones, which start workers
    tasks: int | None = None


LOADS = (
    Load("100,000 rows a batch", LARGE, 12, 4),
    Load("4 rows a batch", TINY, 24, 6),
    Load("10 rows a batch in 200 tasks", 10, 8, 2, IN_MANY_TASKS),
)


def once(bench: "Bench") -> None:
    for load in LOADS:
        source = bench.filled_topic(load.rows * load.batches)
        bench.run.workloads[load.title] = load.title
        for number in range(ROUNDS):
            numbers = {
                AT_LEAST_ONCE: _batch_ms(bench, load, source, _at_least_once),
                EXACTLY_ONCE: _batch_ms(bench, load, source, _exactly_once),
            }
            bench.run.add(number, SYSTEM, load.title, numbers)
        print(_line(bench.run, load), flush=True)


def once_lines(run: "Run") -> list[str]:
    """A table, if it was measured."""
    measured = [load for load in LOADS if load.title in run.workloads]
    if not measured:
        return []
    head = ["| | at least once, ms | exactly once, ms | exactly once / at least once |", "|---|---|---|---|"]
    return head + [_line(run, load) for load in measured]


def _line(run: "Run", load: Load) -> str:
    each = [[*run.values(SYSTEM, load.title, way).values()] for way in (AT_LEAST_ONCE, EXACTLY_ONCE)]
    before, after = map(statistics.median, each)
    ratio = f"{before / after:.2f} of the rate, {after - before:+.0f} ms"
    return f"| {load.title} | {_spread(each[0])} | {_spread(each[1])} | {ratio} |"


def _spread(found: list[float]) -> str:
    return f"{statistics.median(found):.0f} ({min(found):.0f}–{max(found):.0f})"


def _batch_ms(bench: "Bench", load: Load, source: str, start: Callable[..., Any]) -> float:
    checkpoint, target = tempfile.mkdtemp(), bench.new_topic()
    reader = bench.spark.readStream.format("odradek").options(**bench.servers, subscribe=source)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", load.rows)
    frame = reader.load().select("key", "value")
    if load.tasks is not None:
        frame = frame.repartition(load.tasks, "key")
    options = {**bench.servers, "topic": target}
    writer = start(frame, options).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    times = [one.durationMs["triggerExecution"] for one in query.recentProgress if one.numInputRows]
    shutil.rmtree(checkpoint)
    return float(statistics.median(times[load.left_out :]))


def _at_least_once(frame: Any, options: dict[str, str]) -> Any:
    return frame.writeStream.format("odradek").options(**options)


def _exactly_once(frame: Any, options: dict[str, str]) -> Any:
    return write_exactly_once(frame.writeStream, options)
