"""One broker for the tests of the console, and consoles in this process, asked without a socket."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from odradek.admin.access import Access
from odradek.console.app import build_app
from odradek.console.settings import ConsoleSettings
from tests.support import given_or_running

BASE = "http://localhost:8090"
API = "/api/clusters/test"


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with given_or_running(tmp_path_factory.mktemp("broker")) as bootstrap:
        yield bootstrap


class Browser:
    """A browser as far as a page of the console needs one: it keeps cookies, and sends the token of its session."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def get(self, path: str, **headers: str) -> Any:
        return self.client.get(path, headers=headers, follow_redirects=False)

    def token(self) -> str:
        return str(self.get("/api/session").json()["token"])

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        sent = {"X-CSRF-Token": self.token(), "Origin": BASE, **headers}
        return self.client.request(method, path, json=body, headers=sent, follow_redirects=False)

    def seen(self) -> Any:
        return self.client.app.state.console.clusters["test"].poller  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def consoles(bootstrap: str) -> Iterator[Callable[..., Browser]]:
    """A console for the settings that are given; it ends with the module."""
    with ExitStack() as stack:

        def start(**settings: Any) -> Browser:
            clusters = settings.pop("clusters", {"test": Access(bootstrap, {})})
            app = build_app(ConsoleSettings(clusters, **settings))
            client = stack.enter_context(TestClient(app, base_url=BASE, raise_server_exceptions=True))
            return Browser(client)

        yield start


@pytest.fixture(scope="module")
def browser(consoles: Callable[..., Browser], tmp_path_factory: pytest.TempPathFactory) -> Browser:
    return consoles(audit_file=tmp_path_factory.mktemp("console") / "audit")


@pytest.fixture
def topic(browser: Browser) -> str:
    """A new topic of two partitions."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    made = browser.send("POST", f"{API}/topics", {"topic": name, "partitions": 2, "replication_factor": 1})
    assert made.status_code == 200, made.text
    return name


@pytest.fixture
def users_file(tmp_path: Path) -> Path:
    return tmp_path / "users.toml"
