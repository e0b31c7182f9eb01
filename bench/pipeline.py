"""A data pipeline of ten million events from end to end: JSON from a topic, SQL, both kinds of sinks, dead letters.

`odradek pipeline run --once` in processes of its own, as a user runs it: it decodes JSON, checks and filters rows,
writes those of one kind to a topic, sums per minute to Parquet, and would set bad records aside. In turn with it, round
by round, the same written by hand on Spark's own connector (`bench.hand_written`), where Maven can fetch that.

A run over a thousand events tells what a start takes, in seconds and CPU; it is printed apart, and is part of the
rows a second from start to exit. The CPU of Spark and broker for a million rows is what a run takes beyond
its start. What was written is counted: a run that loses a row is no figure.

Small batches are measured apart (`run_small_batches`): how long the first row takes from the start of the command,
and how long one batch of one event takes, one after the other.
"""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench.measure import memory_mb, process_tree

ROOT = Path(__file__).resolve().parent.parent
PARTITIONS = 4
ROUNDS = 3
EVENTS, EVENTS_OF_START = 10_000_000, 1000
LARGE_SHARE = 10  # one in so many events is large
PIPELINE = '''\
[kafka]
"bootstrap.servers" = "{bootstrap}"

[pipeline.spark]
"spark.driver.memory" = "3g"
"spark.sql.shuffle.partitions" = "2"

[sources.events]
topic = "{source}"
schema = "id BIGINT NOT NULL, kind STRING NOT NULL, amount DOUBLE NOT NULL, at TIMESTAMP NOT NULL"
watermark = {{ column = "at", delay = "1 minute" }}

[transforms.large]
sql = "SELECT id, kind, amount FROM events WHERE kind = 'large'"

[transforms.revenue]
sql = """
SELECT window(at, '1 minute').start AS minute, count(*) AS events, sum(amount) AS amount
FROM events GROUP BY window(at, '1 minute')
"""

[sinks.large]
from = "large"
topic = "{sink}"
key = "id"

[sinks.revenue]
from = "revenue"
path = "revenue"

[dead_letters]
topic = "{dead}"
'''


def event_frame(spark: Any, events: int) -> Any:
    """Distinct events of about 90 bytes, over an hour."""
    kind = f"if(id % {LARGE_SHARE} = 0, 'large', 'small')"
    at = "timestamp_seconds(1767225600 + id % 3600)"
    fields = f"'id', id, 'kind', {kind}, 'amount', id % 1000 / 10D, 'at', {at}"
    value = f"to_json(named_struct({fields}))"
    return spark.range(0, events, 1, 4).selectExpr(f"{value} AS value")


class Topics(NamedTuple):
    bootstrap: str
    source: str
    sink: str
    dead: str


def run_ours(topics: Topics) -> dict[str, float]:
    arguments = ["odradek", "pipeline", "run", "--once", "--master", "local[2]", "bench.toml"]
    return _run(arguments, {"bench.toml": PIPELINE.format(**topics._asdict())})


def run_by_hand(topics: Topics, jars: list[Path]) -> dict[str, float]:
    return _run(["bench.hand_written", *topics, ",".join(map(str, jars))], {})


def _run(arguments: list[str], files: dict[str, str]) -> dict[str, float]:
    """Run a Python module over all that is in its source; what it took, the broker's share included."""
    with tempfile.TemporaryDirectory() as directory:
        for name, text in files.items():
            (Path(directory) / name).write_text(text)
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        log = Path(directory) / "output.log"
        start = time.perf_counter()
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=directory,
                env={**os.environ, "PYTHONPATH": path},
                stdout=output,
                stderr=output,
            )
        watch = _Watch(process.pid)
        status = process.wait()
        seconds = time.perf_counter() - start
        watch.end()
        if status != 0:
            raise RuntimeError(f"{arguments[0]} ended with status {status}:\n{log.read_text()[-2000:]}")
        return {"seconds": seconds, "cpu_s": watch.cpu_s, "memory_mb": watch.peak_mb}


SMALL_BATCHES = 30


def run_small_batches(topics: Topics) -> dict[str, float]:
    """The pipeline without `--once`, fed with one event at a time, each as soon as the one before was written."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": topics.bootstrap, "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": "bench", "fetch.wait.max.ms": 10})
    consumer.assign([TopicPartition(topics.sink, number, 0) for number in range(PARTITIONS)])

    def feed(number: int) -> float:
        """Seconds until the event's row is in the sink."""
        at = f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}Z"
        event = {"id": number, "kind": "large", "amount": 1.0, "at": at}
        begin = time.perf_counter()
        producer.produce(topics.source, json.dumps(event).encode(), partition=number % PARTITIONS)
        producer.flush()
        deadline = begin + 120
        while (record := consumer.poll(1)) is None or record.error() is not None:
            if time.perf_counter() > deadline or process.poll() is not None:
                raise RuntimeError(f"no row came:\n{log.read_text()[-2000:]}")
        return time.perf_counter() - begin

    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "bench.toml").write_text(PIPELINE.format(**topics._asdict()))
        log = Path(directory) / "output.log"
        command = [sys.executable, "-m", "odradek", "pipeline", "run", "--master", "local[2]", "bench.toml"]
        with log.open("w") as output:
            process = subprocess.Popen(command, cwd=directory, stdout=output, stderr=output)
        first_s = feed(0)
        seconds = [feed(number) for number in range(1, SMALL_BATCHES + 1)]
        process.send_signal(signal.SIGTERM)
        process.wait(120)
        batches = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    consumer.close()
    durations = {
        query: [one["duration_ms"] for one in batches if one.get("query") == query and one.get("rows_in")]
        for query in ("large", "revenue")
    }
    settled = SMALL_BATCHES // 3  # the first ones warm up
    return {
        "first_row_s": first_s,
        "event_to_row_ms": statistics.median(seconds[settled:]) * 1000,
        **{f"batch_ms_{name}": statistics.median(found[settled:]) for name, found in durations.items()},
    }


class _Watch:
    """Looks twice a second at a process and its descendants, for their memory, and at all of ours, for their CPU.

    The CPU of a process is what it had used when it was last seen: most processes of Spark's are never waited for
    by their parent, and would be missing in its sum.
    """

    def __init__(self, pid: int) -> None:
        self._pid, self.peak_mb, self._ended = pid, 0.0, threading.Event()
        self._before = self._last = _own_cpu_s()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def cpu_s(self) -> float:
        return sum(used - self._before.get(pid, 0.0) for pid, used in self._last.items())

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            self._last = self._last | _own_cpu_s()
            with contextlib.suppress(OSError):  # one of them has just ended
                self.peak_mb = max(self.peak_mb, memory_mb(process_tree([self._pid])))

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._last = self._last | _own_cpu_s()


def _own_cpu_s() -> dict[int, float]:
    """Return the CPU time that each descendant of this process has used by itself."""
    used = {}
    for pid in process_tree([os.getpid()])[1:]:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            used[pid] = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return used
