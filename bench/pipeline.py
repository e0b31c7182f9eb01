"""A data pipeline of ten million events from end to end: JSON from a topic, SQL, and both kinds of sinks.

`odradek pipeline run --once` in processes of its own, as a user runs it: it decodes JSON, checks and filters rows,
writes those of one kind to a topic and sums per minute to Parquet. Measured with 1, 4 and 16 partitions: rows a second
from start to exit (Spark's start included), the CPU of Spark and broker for a million rows, and the peak of the
resident memory of Spark's processes. What was written is counted: a run that loses a row is no figure.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measure import memory_mb, process_tree

PARTITIONS = (1, 4, 16)
EVENTS = 10_000_000
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
'''


def event_frame(spark: Any, events: int) -> Any:
    """Distinct events of about 90 bytes, over an hour."""
    kind = f"if(id % {LARGE_SHARE} = 0, 'large', 'small')"
    at = "timestamp_seconds(1767225600 + id % 3600)"
    fields = f"'id', id, 'kind', {kind}, 'amount', id % 1000 / 10D, 'at', {at}"
    value = f"to_json(named_struct({fields}))"
    return spark.range(0, events, 1, 4).selectExpr(f"{value} AS value")


def run_once(bootstrap: str, source: str, sink: str, cpu_seconds: Callable[[], float]) -> dict[str, float]:
    """Run the pipeline over all that is in `source`; what it took, with the broker's share by `cpu_seconds`."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "bench.toml"
        file.write_text(PIPELINE.format(bootstrap=bootstrap, source=source, sink=sink))
        start, cpu_start = time.perf_counter(), cpu_seconds()
        command = [
            sys.executable,
            "-m",
            "odradek",
            "pipeline",
            "run",
            "--once",
            "--master",
            "local[2]",
            file.name,
        ]
        process = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL)
        peak = _Peak(process.pid)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if status != 0:
            raise RuntimeError(f"the pipeline ended with status {process.returncode}")
        cpu = used.ru_utime + used.ru_stime + cpu_seconds() - cpu_start
        return {"seconds": seconds, "cpu_s": cpu, "memory_mb": peak.end()}


class _Peak:
    """The largest memory of a process and its descendants, looked at twice a second."""

    def __init__(self, pid: int) -> None:
        self._pid, self._peak, self._ended = pid, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            with contextlib.suppress(OSError):  # one of them has just ended
                self._peak = max(self._peak, memory_mb(process_tree([self._pid])))

    def end(self) -> float:
        self._ended.set()
        self._thread.join()
        return self._peak
