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


def run_once(bootstrap: str, source: str, sink: str) -> dict[str, float]:
    """Run the pipeline over all that is in `source`; what it took, the broker's share included."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "bench.toml"
        file.write_text(PIPELINE.format(bootstrap=bootstrap, source=source, sink=sink))
        start = time.perf_counter()
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
        watch = _Watch(process.pid)
        status = process.wait()
        seconds = time.perf_counter() - start
        watch.end()
        if status != 0:
            raise RuntimeError(f"the pipeline ended with status {status}")
        return {"seconds": seconds, "cpu_s": watch.cpu_s, "memory_mb": watch.peak_mb}


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
    """What each process that this one started, or that one of those started, has used by itself."""
    used = {}
    for pid in process_tree([os.getpid()])[1:]:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            used[pid] = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return used
