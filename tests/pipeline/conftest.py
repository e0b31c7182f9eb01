"""One Spark and one broker for all tests of pipelines; tests that need Spark are marked, as in tests/spark."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.lab import SETTINGS, Lab
from tests.selection import mark_long, mark_spark
from tests.support import RunningBroker, running_broker

HERE = Path(__file__).parent
STAND_ALONE = {
    "test_database_loading.py",
    "test_pipeline_connectors.py",
    "test_pipeline_document.py",
    "test_pipeline_definition.py",
    "test_pipeline_parts.py",
    "test_pipeline_command.py",
    "test_pipeline_counting.py",
    "test_pipeline_rooms.py",
    "test_pipeline_shape.py",
    "test_lake_parts.py",
    "test_lake_tables.py",
    "test_lake_duckdb.py",
}
LONG = {
    "test_the_password_is_in_no_command_line_log_plan_or_checkpoint",  # a run in a process of its own
    "test_kill_9_of_the_driver_its_jvm_and_the_database_repeats_nothing",
    "test_kill_9_loses_nothing_and_repeats_only_rows_of_a_database",  # beside runs whose JVM dies, in one process
}


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_spark(HERE, items, STAND_ALONE)
    mark_long(HERE, items, LONG)


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from odradek.pipeline.session import start

    directory = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    warehouse = {"spark.sql.warehouse.dir": str(directory / "warehouse")}
    session = start("local[2]", SETTINGS | warehouse, log_file=directory / "spark.log")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker"), auto_create_topics_enable="false") as broker:
        yield broker


@pytest.fixture
def lab(broker: RunningBroker, tmp_path: Path) -> Lab:
    """A directory for a pipeline's file, and topics of its own on the broker."""
    return Lab(broker.bootstrap, tmp_path)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a pipeline's file."""

    def write_file(text: str, name: str = "pipe.toml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write_file


def as_json(path: Path) -> Any:
    return json.loads(path.read_text())
