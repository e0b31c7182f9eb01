"""Pipelines beside programs of Java's that Maven fetches. Run by `make test-jvm`, never by `make test`."""

from pathlib import Path

import pytest

from tests.selection import mark_peer

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_peer(HERE, items, config, "test-jvm")
