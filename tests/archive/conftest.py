"""One broker for the tests of archives, and commands that run in this process."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import pyarrow as pa
import pytest

from odradek.archive.location import Location
from odradek.archive.rows import read_files
from odradek.archive.tables import Table
from tests.cli.conftest import run_here  # noqa: F401
from tests.spark.spark_topics import Topics
from tests.support import RunningBroker, running_broker

Command = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="package")
def broker(tmp_path_factory) -> Iterator[RunningBroker]:
    often = {
        "transaction_abort_timed_out_transaction_cleanup_interval_ms": "100",
        "log_cleaner_backoff_ms": "50",
    }
    with running_broker(tmp_path_factory.mktemp("broker"), **often) as broker:
        yield broker


@pytest.fixture
def topics(broker) -> Topics:
    return Topics(broker.bootstrap)


@pytest.fixture
def odradek(broker, run_here) -> Command:  # noqa: F811
    return partial(run_here, environ={"ODRADEK_BOOTSTRAP_SERVER": broker.bootstrap})


@pytest.fixture
def archive(tmp_path) -> Path:
    return tmp_path / "archive"


def archived_rows(archive: Path, topic: str) -> dict[int, list[dict]]:
    """All rows by partition, in the order of the table's files."""
    location = Location.of(str(archive), topic)
    snapshot = Table.open(location).snapshot()
    found = {}
    for number in snapshot.ends:
        files = snapshot.files_of(number)
        batches = [batch for one in files for batch in read_files(location, [one.path], one.range)]
        found[number] = pa.Table.from_batches(batches).to_pylist() if batches else []
    return found


def archived_offsets(archive: Path, topic: str) -> dict[int, list[int]]:
    return {number: [row["offset"] for row in rows] for number, rows in archived_rows(archive, topic).items()}
