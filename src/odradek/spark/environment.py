"""Finds out whether Spark can run here, and if not, says why in one line."""

import shutil
from importlib.metadata import PackageNotFoundError, version
from os import environ
from pathlib import Path

OLDEST_PYSPARK = (4, 2)


def missing() -> str | None:
    """Say what is missing and how to get it; None if nothing is."""
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        return "PySpark is not installed: pip install '.[spark]' in a clone of Odradek"
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST_PYSPARK:
        return f"PySpark {found} is too old, 4.2 or newer is needed: pip install '.[spark]' in a clone of Odradek"
    home = environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and (Path(home) / "bin" / "java").exists()):
        return "Java is not installed, Spark needs 17 or newer: apt-get install openjdk-17-jre-headless"
    return None
