"""Two brokers for the tests of mirrors, as long as a worker lives."""

from collections.abc import Iterator

import pytest

from tests.support import RunningBroker, running_broker

SETTINGS = {
    "group_initial_rebalance_delay_ms": "0",
    "offsets_topic_num_partitions": "2",
    "transaction_state_log_num_partitions": "2",
    "log_cleaner_backoff_ms": "100",
}


@pytest.fixture(scope="session")
def west(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("west"), **SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="session")
def east(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("east"), **SETTINGS) as broker:
        yield broker
