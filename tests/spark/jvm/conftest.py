"""Spark with its own Kafka connector beside ours, on Apache Kafka. Run by `make test-jvm`, never by `make test`.

A session has jars from its start or not at all: so these tests have a session of their own, and must not
share a process with the others.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.selection import mark_peer
from tests.spark.spark_topics import Topics
from tools.peer.kafka import KafkaPeer, PeerUnavailable, fetch_jars
from tools.spark_jars import connector_jars

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_peer(HERE, items, config, "test-jvm")


@pytest.fixture(scope="session")
def session_settings(session_settings: dict[str, str]) -> dict[str, str]:
    try:
        fetch_jars()
        jars = connector_jars()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    return session_settings | {"spark.jars": ",".join(map(str, jars))}


@pytest.fixture(scope="session")
def kafka(session_settings: dict[str, str]) -> Iterator[KafkaPeer]:
    with KafkaPeer() as peer:
        yield peer


@pytest.fixture(scope="session")
def topics(kafka: KafkaPeer) -> Topics:
    return Topics(kafka.bootstrap)
