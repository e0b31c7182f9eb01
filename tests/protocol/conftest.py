"""A broker for all tests that nothing happens to."""

from collections.abc import Iterator

import pytest

from tests.protocol.raw import Raw
from tests.support import RunningBroker, running_broker

SETTINGS = {
    "num_partitions": "2",
    "socket_request_max_bytes": "5000000",
    "max_incremental_fetch_session_cache_slots": "50",
    "offsets_topic_num_partitions": "2",
    "group_initial_rebalance_delay_ms": "0",
}


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("protocol"), **SETTINGS) as running:
        yield running


@pytest.fixture(scope="session")
def quiet_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that refuses little: `broker` refuses so much that further lines may only be counted (host.repeats)."""
    with running_broker(tmp_path_factory.mktemp("quiet"), **SETTINGS) as running:
        yield running


@pytest.fixture
def raw(broker: RunningBroker) -> Iterator[Raw]:
    with Raw(broker.bootstrap) as connection:
        yield connection
