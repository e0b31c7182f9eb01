"""Spark's own Kafka connector, which PySpark does not bring: fetched by Maven, kept in the user's cache.

It is what ours is compared with, in tests and benchmarks. Versions are those that were tried together on
PySpark 4.3: the newest that Maven Central has of each.
"""

import os
import shutil
import subprocess
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


def connector_jars() -> list[Path]:
    """The jars, in the order given above, for the setting `spark.jars`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(base) / "odradek" / "spark-kafka"
    jars = [directory / _file_name(artifact) for artifact in ARTIFACTS]
    for artifact, jar in zip(ARTIFACTS, jars, strict=True):
        if not jar.exists():
            fetch(artifact, jar)
    return jars


def _file_name(artifact: str) -> str:
    _, name, version = artifact.split(":")
    return f"{name}-{version}.jar"


def fetch(artifact: str, target: Path) -> None:
    """By Maven, which names the file as `target` has to be named."""
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
