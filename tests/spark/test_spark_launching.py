"""The Python that Spark's workers use, and what a session of ours is set to."""

import os
import subprocess
import sys

import pytest
from pyspark import SparkContext

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


@pytest.fixture
def this_python(monkeypatch):
    """Environment of a program that has just imported the package, with no JVM yet."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    for name in ("SPARK_HOME", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT", launching.WORKER_PYTHON_RUNS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    return monkeypatch


def python_of_workers(master):
    with launching.installed_pyspark(master):
        return os.environ["PYSPARK_PYTHON"]


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_workers_on_one_machine_import_the_installed_pyspark(this_python, master):
    assert python_of_workers(master) == str(launching.WORKER_PYTHON)
    assert os.environ[launching.WORKER_PYTHON_RUNS] == sys.executable
    assert os.environ["PYSPARK_PYTHON"] == sys.executable, "a later session may be on a cluster"


@pytest.mark.parametrize("master", ["spark://somewhere:7077", "local-cluster[2,1,1024]", "yarn"])
def test_workers_of_a_cluster_import_what_spark_gives_them(this_python, master):
    assert python_of_workers(master) == sys.executable


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PYSPARK_PYTHON", "./environment/bin/python"),
        ("PYSPARK_DRIVER_PYTHON", "ipython"),
        ("PYSPARK_GATEWAY_PORT", "1"),
        ("SPARK_HOME", "/opt/spark"),
    ],
)
def test_who_chose_a_python_or_another_spark_keeps_it(this_python, variable, value):
    this_python.setenv(variable, value)
    before = os.environ["PYSPARK_PYTHON"]
    assert python_of_workers("local[2]") == before


def test_a_running_jvm_keeps_its_workers(this_python):
    this_python.setattr(SparkContext, "_gateway", object())
    assert python_of_workers("local[2]") == sys.executable


def test_the_script_leaves_out_the_zips_of_spark_and_nothing_else(tmp_path):
    libraries = tmp_path / "python" / "lib"
    others = [str(tmp_path / "one"), str(tmp_path / "with a space *"), str(tmp_path / "my.zip")]
    path = [f"{libraries}/pyspark.zip", others[0], f"{libraries}/py4j-0.10.9.9-src.zip", *others[1:]]
    environ = os.environ | {
        "SPARK_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(path),
        launching.WORKER_PYTHON_RUNS: sys.executable,
    }
    program = "import os, sys; print(os.environ['PYTHONPATH'], *sys.argv[1:], sep='\\n')"
    command = [str(launching.WORKER_PYTHON), "-c", program, "an argument", "*"]
    found = subprocess.check_output(command, env=environ, cwd=tmp_path, text=True)
    assert found.splitlines() == [os.pathsep.join(others), "an argument", "*"]
