"""Spark's own connectors for Kafka, Delta and Iceberg, which PySpark does not bring: fetched by Maven, kept in the
user's cache.

They are what ours are compared with, in tests and benchmarks. Versions are those that were tried together: the newest
that Maven Central has of each. The Kafka connector fits PySpark 4.3. Those for Delta and Iceberg do not, so an older
PySpark is fetched for them.

    python -m tools.spark_jars    # fetches the one for Delta, and prints where it is
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.peer.kafka import PeerUnavailable

FETCH_TIMEOUT_S = 300
CONNECTOR_VERSION = "4.2.0"
ARTIFACTS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
DELTA_SPARK, ICEBERG_SPARK = "4.2.1", "4.1.4"  # the newest PySpark that each of these connectors fits
DELTA_VERSION, ICEBERG_VERSION = "4.4.0", "1.12.0"
ICEBERG_ARTIFACTS = (f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG_VERSION}",)
DELTA_ARTIFACTS = (
    f"io.delta:delta-spark_4.2_2.13:{DELTA_VERSION}",
    *(
        f"io.delta:{name}:{DELTA_VERSION}"
        for name in (
            "delta-storage",
            "delta-kernel-api",
            "delta-kernel-defaults",
            "delta-kernel-unitycatalog",
        )
    ),
)
DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def connector_jars() -> list[Path]:
    """Return the jars of the Kafka connector, in the order given above, for the setting `spark.jars`."""
    return _jars("spark-kafka", ARTIFACTS)


def delta_jars() -> list[Path]:
    return _jars("spark-lake", DELTA_ARTIFACTS)


def iceberg_jars() -> list[Path]:
    return _jars("spark-lake", ICEBERG_ARTIFACTS)


def older_pyspark(version: str) -> Path:
    """A directory with it, to be put first on Python's path."""
    directory = _cache() / f"pyspark-{version}"
    if not directory.exists():
        with tempfile.TemporaryDirectory(dir=_cache()) as scratch:
            target = Path(scratch) / "packages"
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target)]
            result = subprocess.run([*pip, f"pyspark=={version}"], capture_output=True, text=True)
            if result.returncode != 0:
                raise PeerUnavailable(f"pip could not fetch PySpark {version}: {result.stderr[-300:]}")
            target.rename(directory)
    return directory


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(base) / "odradek"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _jars(name: str, artifacts: Sequence[str]) -> list[Path]:
    directory = _cache() / name
    jars = [directory / _file_name(artifact) for artifact in artifacts]
    for artifact, jar in zip(artifacts, jars, strict=True):
        if not jar.exists():
            fetch(artifact, jar)
    return jars


def _file_name(artifact: str) -> str:
    _, name, version = artifact.split(":")
    return f"{name}-{version}.jar"


def fetch(artifact: str, target: Path) -> None:
    """Download by Maven, which names the file as `target` has to be named."""
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable("Maven is not installed (Debian: apt-get install maven)")
    command = [
        maven,
        "-B",
        "-q",
        "dependency:copy",
        f"-Dartifact={artifact}",
        f"-DoutputDirectory={target.parent}",
    ]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"Maven did not fetch {artifact} within {FETCH_TIMEOUT_S} s") from None
    if result.returncode != 0 or not target.exists():
        raise PeerUnavailable(f"Maven could not fetch {artifact}: {result.stdout[-300:].strip()}")


if __name__ == "__main__":
    try:
        print(older_pyspark(DELTA_SPARK))
    except PeerUnavailable as reason:
        sys.exit(str(reason))
