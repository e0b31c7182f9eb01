"""Archives beside what they stand beside: an archiver beside Spark's Parquet sink, one table beside the topic, and SQL.

One broker, one session, one run; what is compared takes turns, so that whatever else the machine does slows both alike.

    archive   `odradek archive` of 100-byte values, a process from start to end, beside a warm Spark session that
              reads them by the JVM connector (tuned) and writes Parquet. Must reach: 0.5 M rows a second, 1.0 x Spark
    table     the sum of lengths of the newest tenth by time: `odradek.spark.table` beside the topic. Must reach: 3 x
    sql       `odradek sql` over JSON records, and over a small topic, from start to end. Must reach: 3 s and 1 s for a
              million records and a hundred

Each figure is the median of the rounds, with the least and the most.

    python -m bench.archive [--rows 5000000] [--sql-rows 1000000] [--rounds 3] [--only archive,table,sql]
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import odradek.spark
from bench.pipeline import event_frame
from bench.runner import RESULTS
from bench.spark import THEIRS, TUNED_SOURCE, VALUE_BYTES, Bench, new_run, odradek_broker, session
from odradek.spark.environment import missing
from tools.peer.kafka import PeerUnavailable
from tools.spark_jars import connector_jars

SMALL_ROWS = 100
FIRST_MS = 1_767_225_600_000  # the time of the first record; the others follow, one a millisecond
NEWEST = 10  # a tenth of the records
PARTS = ("archive", "table", "sql")
QUERY = "SELECT kind, count(*) AS n, sum(amount) AS total FROM {} GROUP BY kind"


def seconds_of(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turn(rounds: int, *works: Callable[[], Any]) -> list[list[float]]:
    """Seconds of each, after a round that warms up."""
    found: list[list[float]] = [[] for _ in works]
    for number in range(-1, rounds):
        for one, work in zip(found, works, strict=True):
            took = seconds_of(work)
            if number >= 0:
                one.append(took)
    return found


def spread(values: Sequence[float], unit: str) -> str:
    return f"{statistics.median(values):.2f} {unit} ({min(values):.2f}–{max(values):.2f})"


def ratio_line(title: str, ours: list[float], theirs: list[float], beside: str, rows: int) -> str:
    rates = [[rows / 1e6 / one for one in times] for times in (ours, theirs)]
    ratio = statistics.median(theirs) / statistics.median(ours)
    return f"{title}: {spread(rates[0], 'M rows/s')}, {beside} {spread(rates[1], 'M rows/s')}: {ratio:.2f} x"


def command(bootstrap: str, *arguments: str) -> None:
    line = [sys.executable, "-m", "odradek", "-b", bootstrap, *arguments]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def timed_topic(bench: Bench) -> str:
    """Records of 100 bytes, a millisecond apart."""
    name = bench.new_topic()
    seconds = f"{FIRST_MS / 1000:.3f} + id / 1000D"
    frame = bench.values(bench.rows).selectExpr(
        "key", "value", f"timestamp_seconds({seconds.replace('id', 'CAST(key AS BIGINT)')}) AS timestamp"
    )
    bench.write("odradek", frame, name, {})
    return name


def archive(bench: Bench, topic: str, directory: Path, rounds: int) -> str:
    connector, options = ("kafka", TUNED_SOURCE) if THEIRS in bench.run.systems else ("odradek", {})

    def ours() -> None:
        shutil.rmtree(directory / "archive", ignore_errors=True)
        command(bench.bootstrap, "archive", topic, "--to", str(directory / "archive"), "--quiet")

    def theirs() -> None:
        rows = bench.read(connector, topic, {**options, "includeHeaders": "true"})
        rows.write.mode("overwrite").parquet(str(directory / "parquet"))

    times = in_turn(rounds, ours, theirs)
    return ratio_line("archive", *times, f"Spark's Parquet sink on format('{connector}')", bench.rows)


def one_table(bench: Bench, topic: str, directory: Path, rounds: int) -> str:
    path = str(directory / "archive")
    if not (directory / "archive" / topic).exists():
        command(bench.bootstrap, "archive", topic, "--to", path, "--quiet")
    since = (FIRST_MS + bench.rows * (NEWEST - 1) // NEWEST) / 1000
    newest = f"timestamp >= timestamp_seconds({since:.3f})"

    def total(frame: Any) -> None:
        assert frame.where(newest).selectExpr("sum(length(value))").collect()[0][0] > 0

    def ours() -> None:
        total(odradek.spark.table(bench.spark, archive=path, topic=topic, options=bench.servers))

    def theirs() -> None:
        total(bench.read("odradek", topic, {}))

    times = in_turn(rounds, ours, theirs)
    return ratio_line("one table, the newest tenth", *times, "the topic", bench.rows)


def sql(bench: Bench, count: int, rounds: int) -> str:
    topic = bench.new_topic()
    bench.write("odradek", event_frame(bench.spark, count), topic, {})
    query = QUERY.format(f'"{topic}"')
    (times,) = in_turn(rounds, lambda: command(bench.bootstrap, "sql", query))
    return f"odradek sql over {count:,} JSON records: {spread(times, 's')}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--sql-rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    arguments = parser.parse_args()
    reason = missing()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    try:
        jars = connector_jars()
    except PeerUnavailable as error:
        print(f"no JVM connector to compare with, ours is in its place: {error}")
        jars = []
    wanted = set(arguments.only.split(","))
    with tempfile.TemporaryDirectory() as name, odradek_broker(Path(name) / "data") as bootstrap:
        spark = session(jars)
        run = new_run(arguments.rows, "odradek", bool(jars), set())
        measure(Bench(spark, bootstrap, arguments.rows, run), wanted, Path(name), arguments)
        spark.stop()
    return 0


def measure(bench: Bench, wanted: set[str], directory: Path, arguments: argparse.Namespace) -> None:
    lines: list[str] = []

    def show(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    show(
        f"{bench.rows:,} rows of {VALUE_BYTES} bytes, {arguments.rounds} rounds in turn after one that warms up"
    )
    topic = timed_topic(bench) if wanted & {"archive", "table"} else ""
    if "archive" in wanted:
        show(archive(bench, topic, directory, arguments.rounds))
    if "table" in wanted:
        show(one_table(bench, topic, directory, arguments.rounds))
    if "sql" in wanted:
        for count in (arguments.sql_rows, SMALL_ROWS):
            show(sql(bench, count, arguments.rounds))
    if wanted == set(PARTS):
        (RESULTS / "archive.md").write_text("\n".join(f"- {line}" for line in lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
