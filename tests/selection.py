"""Which tests of a directory need more than Python: marked, so that `make` can leave them out or run them alone.

For the `pytest_collection_modifyitems` of a directory's conftest.py, which has to come before `-m` looks at the markers
(`tryfirst`).
"""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pytest


def within(directory: Path, items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    return (item for item in items if directory in item.path.parents)


def mark_spark(directory: Path, items: Iterable[pytest.Item], stand_alone: Collection[str]) -> None:
    """All need Spark, but for the files that stand alone."""
    for item in within(directory, items):
        if item.path.name not in stand_alone:
            item.add_marker(pytest.mark.spark)


def mark_peer(directory: Path, items: Iterable[pytest.Item], config: pytest.Config, make_target: str) -> None:
    """All compare with Apache Kafka, and run only where that is asked for."""
    is_asked_for = "peer" in (config.option.markexpr or "")
    for item in within(directory, items):
        item.add_marker(pytest.mark.peer)
        if not is_asked_for:
            item.add_marker(pytest.mark.skip(reason=f"run by 'make {make_target}'"))
