"""Tests that one line says so where Spark cannot run: PySpark is missing or too old, or Java is missing."""

import importlib
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from odradek.spark import environment

ROOT = Path(__file__).parents[2]
NO_JAVA = "Java is not installed, Spark needs 17 or newer: apt-get install openjdk-17-jre-headless"


def test_without_pyspark(monkeypatch):
    def not_found(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(environment, "version", not_found)
    assert environment.missing() == "PySpark is not installed: pip install '.[spark]' in a clone of Odradek"


@pytest.mark.parametrize("old", ["4.1.2", "4.0.0", "3.5.8"])
def test_with_an_old_pyspark(monkeypatch, old):
    monkeypatch.setattr(environment, "version", lambda _: old)
    message = (
        f"PySpark {old} is too old, 4.2 or newer is needed: pip install '.[spark]' in a clone of Odradek"
    )
    assert environment.missing() == message


@pytest.mark.parametrize("new", ["4.2.0", "4.3.0.dev1", "4.10.0", "5.0.0"])
def test_a_new_pyspark_is_not_what_is_missing(monkeypatch, new):
    monkeypatch.setattr(environment, "version", lambda _: new)
    assert environment.missing() in (None, NO_JAVA)


def test_the_format_is_there_in_an_old_pyspark_and_says_what_it_needs(monkeypatch):
    """It must be: a package that fails to import hides every other Python source from Spark."""
    import pyspark

    import pyspark_odradek

    monkeypatch.setattr(pyspark, "__version__", "4.1.2")
    try:
        source = importlib.reload(pyspark_odradek).DefaultSource({})
        assert source.name() == "odradek"
        uses = [source.schema, lambda: source.reader(None), lambda: source.streamReader(None)]
        uses += [lambda: source.writer(None, False), lambda: source.streamWriter(None, False)]
        for use in uses:
            with pytest.raises(RuntimeError) as error:
                use()
            message = (
                "format('odradek') needs PySpark 4.2 or newer, this is 4.1.2: pip install 'pyspark>=4.2'"
            )
            assert str(error.value) == message
    finally:
        monkeypatch.undo()
        importlib.reload(pyspark_odradek)


def without_java(tmp_path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    environ.pop("JAVA_HOME", None)
    return subprocess.run(
        [sys.executable, *command], env=environ, cwd=ROOT, capture_output=True, text=True, timeout=60
    )


def test_the_benchmark_without_java(tmp_path):
    result = without_java(tmp_path, "-m", "bench.spark")
    assert (result.returncode, result.stdout, result.stderr) == (1, "", f"{NO_JAVA}\n")


def test_a_java_home_is_enough(tmp_path, monkeypatch):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert environment.missing() is None
    java.unlink()
    assert environment.missing() == NO_JAVA
