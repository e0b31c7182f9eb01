"""A cluster for the client commands. ODRADEK_TEST_BOOTSTRAP names another: they must work on any Kafka."""

import os
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from subprocess import CompletedProcess

import pytest
from tests.support import run_command, running_broker

Odradek = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if given := os.environ.get("ODRADEK_TEST_BOOTSTRAP"):
        yield given
        return
    directory = tmp_path_factory.mktemp("broker")
    with running_broker(directory, group_initial_rebalance_delay_ms="0") as broker:
        yield broker.bootstrap


@pytest.fixture
def odradek(bootstrap: str) -> Odradek:
    """The command, told of the cluster by its environment."""
    return partial(run_command, environ={"ODRADEK_BOOTSTRAP_SERVER": bootstrap})


@pytest.fixture
def topic() -> str:
    """A name no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"
