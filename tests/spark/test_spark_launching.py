"""The Python that Spark's workers use, and what a session of ours is set to."""

import os
import subprocess
import sys

import pytest

from odradek.spark import environment, launching

REPORT = "import odradek.spark, os; print(os.environ.get('PYSPARK_PYTHON'))"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, sys.executable),
        ({"PYSPARK_PYTHON": "./environment/bin/python"}, "./environment/bin/python"),
        ({"PYSPARK_GATEWAY_PORT": "1"}, "None"),  # spark-submit has chosen already
    ],
)
def test_importing_the_package_lets_workers_use_this_python_if_nobody_chose_one(given, expected):
    environ = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT")
    }
    found = subprocess.check_output([sys.executable, "-c", REPORT], env=environ | given, text=True)
    assert found.strip() == expected


def test_defaults_are_for_one_machine_unless_there_is_a_cluster():
    for master in (None, "local", "local[2]"):
        found = launching.defaults(master)
        assert found["spark.master"] == (master or "local[*]")
        assert found["spark.driver.host"] == "127.0.0.1"
    assert not launching.defaults("spark://somewhere:7077").keys() & {"spark.master", "spark.driver.host"}
    assert not launching.defaults("local-cluster[2,1,1024]").keys() & {"spark.master", "spark.driver.host"}
    assert launching.LOGGING.exists()


def test_where_spark_cannot_run_one_sentence_says_so(monkeypatch):
    monkeypatch.setattr(environment, "missing", lambda: "Java is not installed")
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    with pytest.raises(launching.SparkUnavailable, match="Java is not installed"):
        launching.session()
