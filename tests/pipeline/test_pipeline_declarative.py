"""The example project for Spark's own declarative pipelines, run twice in a row."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.lab import QUICK_JVM, Lab
from tests.support import running_broker

PROJECT = Path(__file__).parents[2] / "examples" / "declarative-pipeline"


@pytest.mark.long
@pytest.mark.timeout(1700)
def test_the_example_project_runs_twice_in_a_row(java, tmp_path: Path):
    pytest.importorskip("grpc")
    with running_broker(tmp_path) as broker:  # of its own: the project names its topics
        run_twice(Lab(broker.bootstrap, tmp_path))


def run_twice(lab: Lab) -> None:
    lab.topic(1, "orders")
    lab.topic(1, "large-orders")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    environ = clean | {
        "PYSPARK_PYTHON": sys.executable,
        "JDK_JAVA_OPTIONS": QUICK_JVM,
        "ODRADEK_BOOTSTRAP_SERVER": lab.bootstrap,
        "STATE_DIRECTORY": str(lab.directory / "state"),
        "SPARK_PIPELINES": str(Path(sys.executable).with_name("spark-pipelines")),
    }
    for number in (1, 2):
        lab.fill("orders", [{"id": number, "amount": 50.0}, {"id": number + 10, "amount": 150.0}], 1)
        result = subprocess.run(
            [str(PROJECT / "run.sh")],
            capture_output=True,
            text=True,
            timeout=800,
            env=environ,
            cwd=lab.directory,
        )
        assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    assert sorted(row["id"] for row in lab.values("large-orders")) == [11, 12], "each once, over both runs"
