"""The same pipeline on a cluster of two workers, with a worker killed, and with brokers away for minutes."""

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.lab import Lab, conf_arguments, start_command, wait_until
from tests.pipeline.test_pipeline_process import Process
from tests.support import running_broker

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "spark"))  # for what the tests there share
from tests.spark.test_spark_cluster import cluster  # noqa: E402

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
OUTAGE_S = 120
STILL_AWAY = re.compile(r"still cannot .* after (\d+) s")

PIPELINE = """
[pipeline]
name = "{name}"
[sources.orders]
topic = "{source}"
schema = "id BIGINT NOT NULL, at TIMESTAMP"
max_rows_per_batch = 40
watermark = {{ column = "at", delay = "1 day" }}
[transforms.hours]
sql = "SELECT window(at, '1 hour').start AS hour, count(*) AS n FROM orders GROUP BY window(at, '1 hour')"
[sinks.copies]
from = "orders"
topic = "{copies}"
[sinks.hours]
from = "hours"
topic = "{hours}"
mode = "update"
key = "hour"
"""
ROWS = [{"id": number, "at": f"2026-01-01T{number % 3:02}:00:00Z"} for number in range(600)]


@pytest.fixture(scope="module")
def master(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


def on_cluster(lab: Lab, path: Path, master: str, *more: str):
    settings = {"spark.cores.max": "2", "spark.executor.cores": "1", "spark.executor.memory": "512m"}
    arguments = [
        "run",
        str(path),
        "--master",
        master,
        *conf_arguments(**settings, **{"spark.task.maxFailures": "4"}),
    ]
    return start_command(*arguments, *more, cwd=lab.directory, log=lab.directory / "run.log")


def results(lab: Lab, names: dict[str, str]) -> tuple[set[int], dict[bytes, int]]:
    copies = {row["id"] for row in lab.values(names["copies"])}
    return copies, {one.key(): json.loads(one.value())["n"] for one in lab.records(names["hours"])}


def worker_processes() -> list[int]:
    """Spark's workers that this test started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
        if b"deploy.worker.Worker" in command and parent == os.getpid():
            found.append(int(path.name))
    return found


def test_a_cluster_gives_the_rows_that_one_machine_gives_even_if_a_worker_is_killed(lab: Lab, master: str):
    source = lab.topic(4)
    lab.fill(source, ROWS, partitions=4)
    found = {}
    for place in ("local", "cluster"):
        names = {"source": source, "copies": lab.topic(2), "hours": lab.topic(1)}
        path = lab.write(PIPELINE.format(**names, name=place), f"{place}.toml")
        if place == "local":
            process = Process(lab.directory, str(path), "--once")
            assert process.wait() == 0, process.story()
        else:
            running = on_cluster(lab, path, master, "--once")
            wait_until(lambda names=names: lab.records(names["copies"]), lambda: "nothing was written", 300)
            os.kill(worker_processes()[0], signal.SIGKILL)
            assert running.wait(600) == 0, (lab.directory / "run.log").read_text()[-3000:]
        found[place] = results(lab, names)
    assert found["local"] == found["cluster"] == (set(range(600)), dict.fromkeys(found["local"][1], 200))


def longest_outage(directory: Path) -> int:
    """In seconds, as Spark's Python processes have told."""
    told = (path.read_text() for path in (directory / "run.log", *directory.rglob("spark.log")))
    return max((int(found) for text in told for found in STILL_AWAY.findall(text)), default=0)


def test_brokers_away_for_minutes_do_not_end_a_run(java, tmp_path: Path):
    with running_broker(tmp_path) as broker:
        lab = Lab(broker.bootstrap, tmp_path)
        names = {"source": lab.topic(2), "copies": lab.topic(1), "hours": lab.topic(1)}
        lab.fill(names["source"], ROWS[:300])
        path = lab.write(PIPELINE.format(**names, name="away"))
        process = Process(tmp_path, str(path))
        try:
            wait_until(lambda: process.rows("copies") >= 300, process.story, 300)
            broker.kill()
            wait_until(lambda: longest_outage(tmp_path) > OUTAGE_S, process.story, 4 * OUTAGE_S)
            broker.restart()
            lab.fill(names["source"], ROWS[300:])
            wait_until(lambda: process.rows("copies") >= 600, process.story, 300)
            assert not process.said("stopped")
            os.kill(process.process.pid, signal.SIGTERM)
            assert process.wait() == 0, process.story()
        finally:
            process.kill()
        assert {row["id"] for row in lab.values(names["copies"])} == set(range(600))
