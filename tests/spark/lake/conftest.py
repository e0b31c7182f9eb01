"""Spark's own connectors for Delta and Iceberg, on the newest PySpark that they fit, which is not the newest one: Maven
Central has none for 4.3 yet. `make test-jvm` fetches that PySpark and puts it first on the path."""

from pathlib import Path

import pyspark
import pytest

from tests.selection import mark_peer
from tools.peer.kafka import PeerUnavailable
from tools.spark_jars import DELTA_SETTINGS, DELTA_SPARK, delta_jars

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_peer(HERE, items, config, "test-jvm")


@pytest.fixture(scope="session")
def session_settings(session_settings: dict[str, str]) -> dict[str, str]:
    if pyspark.__version__ != DELTA_SPARK:
        pytest.skip(f"Delta's connector fits PySpark {DELTA_SPARK}, and this is {pyspark.__version__}")
    try:
        jars = delta_jars()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    return session_settings | DELTA_SETTINGS | {"spark.jars": ",".join(map(str, jars))}
