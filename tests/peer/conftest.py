"""Apache Kafka and a broker of ours, side by side. Run by `make test-kafka`, never by `make test`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peer.big_clients import compile_programs
from tests.selection import mark_peer
from tests.support import RunningBroker, running_broker
from tools.peer.kafka import KafkaPeer, PeerUnavailable, fetch_jars

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_peer(HERE, items, config, "test-kafka")


@pytest.fixture(scope="session")
def jars() -> Path:
    try:
        return fetch_jars()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def java_classes(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs and connectors of tests/peer/java, compiled."""
    try:
        return compile_programs(tmp_path_factory.mktemp("java"))
    except PeerUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def kafka(jars: Path) -> Iterator[KafkaPeer]:
    with KafkaPeer() as peer:
        yield peer


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("ours")) as broker:
        yield broker
