"""Lake tables in servers that speak Azure's, Google's and Iceberg's protocols: run by `make test-stores` only."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.selection import mark_peer
from tests.stores import servers
from tools.peer.kafka import PeerUnavailable

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_peer(HERE, items, config, "test-stores")


@pytest.fixture(scope="session", params=["azure", "azure by token", "google"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[servers.Store]:
    start = {
        "azure": servers.azurite,
        "azure by token": servers.azurite_by_token,
        "google": servers.fake_gcs,
    }[request.param]
    try:
        with start(tmp_path_factory.mktemp(request.param.replace(" ", "-"))) as store:
            yield store
    except PeerUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of Iceberg's REST catalog."""
    try:
        with servers.rest_catalog(tmp_path_factory.mktemp("catalog")) as address:
            yield address
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
