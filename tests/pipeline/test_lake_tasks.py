"""kill -9 of Python workers and executors while they write their files, and two attempts that both write them: the
table names the files of one attempt, and has every row once."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.pipeline.lab import SETTINGS, Lab
from tests.pipeline.lake_task_driver import FATES, STORY
from tests.pipeline.lakes import iceberg_catalog
from tests.pipeline.test_lake_sinks import SINKS, UPSERT, copy_of, ids, orders
from tests.spark.test_spark_cluster import cluster

HERE = Path(__file__).parent
PARTITIONS, ROWS_PER_BATCH = 2, 20
SOURCE = f"max_rows_per_batch = {ROWS_PER_BATCH}"
CLUSTER = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.task.maxFailures": "4",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "3",
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1",
}

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def master(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Spark repeats a slow task on another host only."""
    with cluster(tmp_path_factory.mktemp("cluster"), hosts=("127.0.0.1", "127.0.0.2")) as address:
        yield address


def run_on(master: str, path: Path) -> None:
    environ = os.environ | {
        "ODRADEK_SPARK_SETTINGS": json.dumps(SETTINGS | CLUSTER),
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [sys.executable, str(HERE / "lake_task_driver.py"), str(path), master]
    log = path.parent / "driver.log"
    with log.open("w") as output:
        subprocess.run(command, env=environ, cwd=HERE.parents[1], stdout=output, stderr=output, timeout=600)
    assert "finished" in log.read_text(), log.read_text()[-3000:]


def named(lab: Lab, form: str) -> set[str]:
    """The files of the newest version."""
    if form == "delta":
        return {Path(one).name for one in DeltaTable(str(lab.directory / "lake" / "orders")).file_uris()}
    from pyiceberg.catalog import load_catalog

    table = load_catalog("odradek", **iceberg_catalog(lab.directory / "warehouse")).load_table("shop.orders")
    return {Path(task.file.file_path).name for task in table.scan().plan_files()}


def written(lab: Lab) -> set[str]:
    return {path.name for path in lab.directory.rglob("part-*.parquet")}


def fates_met(lab: Lab) -> list[str]:
    """Return the fates of batches in their order, as the attempts have told."""
    lines = [line.split() for line in (lab.directory / STORY).read_text().splitlines()]
    found = {}
    for batch, attempt, *words in lines:
        if words[1:2] == ["killed"]:
            found[int(batch)] = f"{words[0]} {words[2]}"
        elif attempt != "0" and int(batch) not in found:
            found[int(batch)] = "overtaken"
    return [found[batch] for batch in sorted(found)]


@pytest.mark.parametrize("form", SINKS)
def test_the_table_names_the_files_of_one_attempt(lab: Lab, master: str, form: str):
    topic = lab.topic(PARTITIONS)
    rows = len(FATES) * ROWS_PER_BATCH
    lab.fill(topic, orders(*range(rows)), PARTITIONS)
    pipeline = copy_of(lab, topic, SINKS[form], source=SOURCE)
    run_on(master, pipeline.document.path)
    assert ids(lab, form) == list(range(rows))
    assert fates_met(lab) == list(FATES)
    unnamed = written(lab) - named(lab, form)
    assert len(unnamed) >= len(FATES), "each first attempt has left a file that no reader sees"


def test_an_upsert_whose_tasks_are_killed(lab: Lab, master: str):
    topic = lab.topic(PARTITIONS)
    rows = len(FATES) * ROWS_PER_BATCH
    lab.fill(topic, orders(*range(rows)), PARTITIONS)
    sink = UPSERT.replace("delete_when", "# delete_when")
    run_on(master, copy_of(lab, topic, sink, source=SOURCE).document.path)
    assert ids(lab, "delta") == list(range(rows))
    assert fates_met(lab) == list(FATES)
