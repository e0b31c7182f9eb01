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
    from bench.spark import Bench

LARGE, TINY = 100_000, 4
ROUNDS = 5
IN_MANY_TASKS = 200
AT_LEAST_ONCE, EXACTLY_ONCE = "at least once", "exactly once"


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


def once(bench: "Bench") -> list[str]:
    """Prints and returns the lines of a table."""
    lines = ["| | at least once, ms | exactly once, ms | exactly once / at least once |", "|---|---|---|---|"]
    for load in LOADS:
        source = bench.filled_topic(load.rows * load.batches)
        found: dict[str, list[float]] = {AT_LEAST_ONCE: [], EXACTLY_ONCE: []}
        for _ in range(ROUNDS):
            for way, start in (AT_LEAST_ONCE, _at_least_once), (EXACTLY_ONCE, _exactly_once):
                found[way].append(_batch_ms(bench, load, source, start))
        before, after = (statistics.median(found[way]) for way in (AT_LEAST_ONCE, EXACTLY_ONCE))
        ratio = before / after
        lines.append(
            f"| {load.title} | {_spread(found[AT_LEAST_ONCE])} | {_spread(found[EXACTLY_ONCE])} | "
            f"{ratio:.2f} of the rate, {after - before:+.0f} ms |"
        )
        print(lines[-1], flush=True)
    return lines


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
