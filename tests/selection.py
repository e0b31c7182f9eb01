"""Marks for tests that take long, or need more than Python: `make` leaves them out, or runs them alone.

`mark_spark` and `mark_peer` are for the `pytest_collection_modifyitems` of a directory's conftest.py, which has to come
before `-m` looks at the markers (`tryfirst`).
"""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Files of tests that need Spark, the longest first. `make` gives them to its workers file by file, in this order:
# so these end together. Those that are not named are short.
LONGEST_SPARK_FILES = (
    "test_pipeline_faults.py",
    "test_pipeline_kinds.py",
    "test_pipeline_docs.py",
    "test_demo.py",
    "test_database_pipeline.py",
    "test_lake_sinks.py",
    "test_pipeline_sharing.py",
    "test_pipeline_once.py",
    "test_pipeline_spark.py",
    "test_spark_cluster.py",
    "test_function_sinks.py",
    "test_avro_sinks.py",
    "test_spark_connect.py",
    "test_spark_program.py",
    "test_expectations.py",
    "test_pipeline_process.py",
    "test_spark_exactly_once.py",
    "test_spark_stream.py",
    "test_spark_sink.py",
    "test_spark_batch.py",
    "test_typed_json.py",
)
PEER_TIMEOUT_S = 1800
SPARK_PLACES = ("tests/spark", "tests/pipeline", "tests/demo")  # where `make` looks for tests that need Spark


def within(directory: Path, items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    return (item for item in items if directory in item.path.parents)


def chunks(seeds: int, size: int) -> list[Any]:
    """Values for `parametrize`: the first seeds of chunks of this size. Those of the second half are marked `long`."""
    return [
        pytest.param(first, marks=[pytest.mark.long] if first >= seeds / 2 else [])
        for first in range(0, seeds, size)
    ]


def mark_spark(directory: Path, items: Iterable[pytest.Item], stand_alone: Collection[str]) -> None:
    """All need Spark, but for the files that stand alone."""
    for item in within(directory, items):
        if item.path.name not in stand_alone:
            item.add_marker(pytest.mark.spark)


def mark_long(directory: Path, items: Iterable[pytest.Item], names: Collection[str]) -> None:
    """Mark the tests of these names."""
    for item in within(directory, items):
        if getattr(item, "originalname", item.name) in names:
            item.add_marker(pytest.mark.long)


def mark_peer(directory: Path, items: Iterable[pytest.Item], config: pytest.Config, make_target: str) -> None:
    """All compare with programs that are not ours, and run only where that is asked for. The first test of one may
    have to fetch and build it."""
    is_asked_for = "peer" in (config.option.markexpr or "")
    for item in within(directory, items):
        item.add_marker(pytest.mark.peer)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PEER_TIMEOUT_S))
        if not is_asked_for:
            item.add_marker(pytest.mark.skip(reason=f"run by 'make {make_target}'"))


def refuse_spark_elsewhere(root: Path, items: Iterable[pytest.Item]) -> None:
    """`make` would not run a test that needs Spark in another directory."""
    places = [root / place for place in SPARK_PLACES]
    for item in items:
        if item.get_closest_marker("spark") and not any(place in item.path.parents for place in places):
            raise pytest.UsageError(f"{item.nodeid} needs Spark, and is in none of {', '.join(SPARK_PLACES)}")


def longest_first(items: list[pytest.Item]) -> None:
    """Order the tests that need Spark by their files, and put them first."""
    ranks = {name: rank for rank, name in enumerate(LONGEST_SPARK_FILES)}
    items.sort(
        key=lambda item: (
            ranks.get(item.path.name, len(ranks)) if item.get_closest_marker("spark") else len(ranks)
        )
    )
