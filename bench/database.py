"""Rows a second into PostgreSQL, beside the limit of COPY on this machine.

A pipeline copies JSON events from a topic into a table, 100,000 rows a batch, exactly once: appended, and as upserts
of keys that are all there already. In turn with them psycopg copies the same rows, prepared as CSV, into the same
table by a single COPY: no client could be faster. Figures of a pipeline are Spark's own times of its batches, without
the first two, which start workers. The server is a new one with Debian's settings, which syncs every commit.

    python -m bench.spark --only database [--rows 500000]
"""

import io
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import pipeline
from odradek.pipeline.file.reading import load
from odradek.pipeline.run.progress import BatchProgress
from odradek.pipeline.run.running import Events, PipelineRun, Supervisor
from tools.postgresql import PASSWORD, Missing, PostgreSQL, running_postgresql

if TYPE_CHECKING:
    from bench.spark import Bench

BATCH, WARM_UP, ROUNDS = 100_000, 2, 3
APPEND, UPSERT, COPY = "append", "upsert", "COPY alone"
TABLE = "CREATE TABLE events (id BIGINT PRIMARY KEY, kind TEXT, amount DOUBLE PRECISION, at TIMESTAMPTZ)"
FILE = """
[kafka]
"bootstrap.servers" = "{bootstrap}"
[sources.events]
topic = "{topic}"
schema = "id BIGINT, kind STRING, amount DOUBLE, at TIMESTAMP"
max_rows_per_batch = {batch}
[sinks.out]
from = "events"
database = "{url}"
password = "${{PASSWORD}}"
table = "events"
mode = "{mode}"
{key}
"""


class Timed(Events):
    def __init__(self) -> None:
        self.batches: list[BatchProgress] = []

    def batch(self, progress: BatchProgress) -> None:
        self.batches.append(progress)


def database(bench: "Bench") -> list[str]:
    """Prints and returns the lines of a table."""
    try:
        with running_postgresql() as server:
            lines = _measured(bench, server)
    except Missing as error:
        lines = [str(error)]
    print("\n".join(lines), flush=True)
    return lines


def _measured(bench: "Bench", server: PostgreSQL) -> list[str]:
    rows = max(bench.rows // 10, 1000)
    batch = max(min(BATCH, rows // (WARM_UP + 2)), 1)
    topic = bench.new_topic()
    bench.write("odradek", pipeline.event_frame(bench.spark, rows), topic, {})
    server.run(TABLE)
    found: dict[str, list[float]] = {APPEND: [], UPSERT: [], COPY: []}
    for _ in range(ROUNDS):
        server.run("TRUNCATE events")
        found[APPEND].append(_pipeline_rate(bench, server, topic, APPEND, batch))
        assert server.rows("SELECT count(*) FROM events") == [(rows,)], "rows were lost or repeated"
        found[UPSERT].append(_pipeline_rate(bench, server, topic, UPSERT, batch))
        assert server.rows("SELECT count(*) FROM events") == [(rows,)], "rows were lost or repeated"
        found[COPY].append(_copy_rate(server))
    limit = statistics.median(found[COPY])
    lines = [f"{rows:,} rows, {batch:,} a batch; rows a second, {ROUNDS} rounds in turn", ""]
    lines += ["| | median (from–to) | of COPY alone |", "|---|---|---|"]
    for title, rates in found.items():
        median = statistics.median(rates)
        spread = f"{median:,.0f} ({min(rates):,.0f}–{max(rates):,.0f})"
        lines.append(f"| {title} | {spread} | {median / limit:.2f} |")
    return lines


def _pipeline_rate(bench: "Bench", server: PostgreSQL, topic: str, mode: str, batch: int) -> float:
    os.environ["PASSWORD"] = PASSWORD
    key = 'key = "id"' if mode == UPSERT else ""
    facts = {"bootstrap": bench.bootstrap, "topic": topic, "url": server.url, "mode": mode, "key": key}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "events.toml"
        path.write_text(FILE.format(**facts, batch=batch))
        events = Timed()
        run = PipelineRun(bench.spark, load(path), events, once=True)
        run.prepare()
        Supervisor([run]).run()
        assert run.problem is None, run.problem
    timed = [one for one in events.batches if one.rows_out][WARM_UP:]
    return sum(one.rows_out or 0 for one in timed) / sum(one.duration_ms for one in timed) * 1000


def _copy_rate(server: PostgreSQL) -> float:
    """Rate of copying what the table has, which is copied out first."""
    with server.connect() as connection:
        data, statement = io.BytesIO(), "COPY events {} (FORMAT csv)"
        with connection.cursor() as cursor, cursor.copy(statement.format("TO STDOUT")) as copy:
            for part in copy:
                data.write(part)
        connection.execute("TRUNCATE events")
        began_s = time.perf_counter()
        with connection.cursor() as cursor, cursor.copy(statement.format("FROM STDIN")) as copy:
            copy.write(data.getbuffer())
        taken_s = time.perf_counter() - began_s
        found: Any = connection.execute("SELECT count(*) FROM events").fetchone()
    return float(found[0] / taken_s)
