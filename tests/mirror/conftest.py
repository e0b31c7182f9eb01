"""Two brokers for the tests of mirrors, as long as a worker lives, and a mirror between them for each test."""

import itertools
from collections.abc import Iterator

import pytest

from tests.mirror.lab import write_file
from tests.support import RunningBroker, running_broker

SETTINGS = {
    "group_initial_rebalance_delay_ms": "0",
    "offsets_topic_num_partitions": "2",
    "transaction_state_log_num_partitions": "2",
    "log_cleaner_backoff_ms": "100",
}
_numbers = itertools.count()


@pytest.fixture(scope="session")
def west(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("west"), **SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="session")
def east(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("east"), **SETTINGS) as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    return f"orders-{next(_numbers)}"


@pytest.fixture
def name() -> str:
    """Name of the source: each test has a mirror, and so a group, of its own."""
    return f"west{next(_numbers)}"


@pytest.fixture
def mirror(west, east, tmp_path, topic, name):
    """A mirror's file for the test's topic."""

    def write(**more):
        return write_file(
            tmp_path,
            west.bootstrap,
            east.bootstrap,
            **{"topics": f'names = ["{topic}"]', "names": (name, "east"), **more},
        )

    return write
