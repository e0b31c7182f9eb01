"""One broker for all tests of clients, and a topic of its own for each test."""

import uuid
from collections.abc import Iterator

import pytest

from tests.support import RunningBroker, running_broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {
        "num_partitions": "3",
        "group_initial_rebalance_delay_ms": "300",
        "offsets_topic_num_partitions": "4",
        "group_consumer_heartbeat_interval_ms": "500",
        "group_consumer_session_timeout_ms": "3000",
        "group_consumer_min_session_timeout_ms": "1000",
        "group_consumer_min_heartbeat_interval_ms": "200",
        "group_min_session_timeout_ms": "1000",
    }
    with running_broker(tmp_path_factory.mktemp("clients"), **settings) as running:
        yield running


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"
