"""The pytest plugin: a broker or a cluster for the session, a fresh topic for each test.

    def test_orders(odradek_broker, odradek_topic):
        producer = Producer({"bootstrap.servers": odradek_broker.bootstrap})
        producer.produce(odradek_topic, "4 spools")

    @pytest.mark.odradek(auto_create_topics_enable=False)        # a broker with these settings
    @pytest.mark.odradek_topic(partitions=3, config={"cleanup.policy": "compact"})

    @pytest.mark.odradek_cluster(brokers=5)
    def test_orders_of_many(odradek_cluster, odradek_cluster_topic):
        odradek_cluster.leader(odradek_cluster_topic).crash()

A broker or a cluster is started when a test first asks for one, and serves all tests with the same settings; under
xdist each worker has its own. Faults (crash, pause) are undone at the end of each test, and the brokers' log of a
failed test is attached to its report. Until a test asks for a broker, this costs an import of pytest.
"""

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

if TYPE_CHECKING:
    from odradek.testing.broker import Broker
    from odradek.testing.cluster import Cluster

BROKER_FIXTURE = "odradek_broker"
CLUSTER_FIXTURE = "odradek_cluster"
BROKER_MARK = "odradek"
CLUSTER_MARK = "odradek_cluster"
MARKS = {BROKER_FIXTURE: BROKER_MARK, CLUSTER_FIXTURE: CLUSTER_MARK}
TOPIC_MARK = "odradek_topic"
OPEN = "PLAINTEXT"
LOG_SECTION = "Odradek broker log"

Running = TypeVar("Running", "Broker", "Cluster")
Key = tuple[str, tuple[tuple[str, str], ...]]


class Brokers:
    """The brokers and clusters of a session, one for each set of settings that tests have asked for."""

    def __init__(self) -> None:
        self._running: dict[Key, Broker | Cluster] = {}
        self._log_starts: dict[Broker, int] = {}

    def broker(self, settings: dict[str, Any]) -> "Broker":
        from odradek.testing.broker import Broker
        from odradek.testing.security import Security

        others, security = _without(settings, "security"), settings.get("security", OPEN)
        return self._get(BROKER_FIXTURE, settings, lambda: Broker(others, security=Security(security)))

    def cluster(self, settings: dict[str, Any]) -> "Cluster":
        from odradek.testing.cluster import Cluster
        from odradek.testing.security import Security

        others, security = _without(settings, "brokers", "security"), settings.get("security", OPEN)
        return self._get(
            CLUSTER_FIXTURE,
            settings,
            lambda: Cluster(settings.get("brokers", 3), others, Security(security)),
        )

    def _get(self, kind: str, settings: dict[str, Any], make: Callable[[], Running]) -> Running:
        from odradek.testing.broker import as_settings

        key = kind, tuple(sorted(as_settings(settings).items()))
        if key not in self._running:
            self._running[key] = make().__enter__()
        return cast(Running, self._running[key])

    @property
    def _brokers(self) -> "Iterator[Broker]":
        from odradek.testing.broker import Broker

        for running in self._running.values():
            if isinstance(running, Broker):
                yield running
            else:
                yield from running

    def begin_test(self) -> None:
        self._log_starts = {broker: broker.log_size for broker in self._brokers}

    def logged(self) -> str:
        """The log of all of them since the test began."""
        return "".join(broker.log_since(self._log_starts.get(broker, 0)) for broker in self._brokers)

    def heal(self) -> None:
        for running in self._running.values():
            running.heal()

    def close(self) -> None:
        for running in self._running.values():
            running.close()
        self._running.clear()


def _without(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in names}


BROKERS = pytest.StashKey[Brokers]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[BROKERS] = Brokers()
    config.addinivalue_line(
        "markers",
        "odradek(security='PLAINTEXT', **settings): the test's broker has this security protocol and these "
        "settings, by Kafka's names with '_' for '.'",
    )
    config.addinivalue_line(
        "markers",
        "odradek_cluster(brokers=3, security='PLAINTEXT', **settings): the test's cluster has so many brokers, with "
        "this security protocol and these settings",
    )
    config.addinivalue_line(
        "markers", "odradek_topic(partitions=1, config={}): the test's topic is made like this"
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    brokers = config.stash.get(BROKERS, None)
    if brokers is not None:
        brokers.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A marker's settings become the parameter of the session's fixture: those of the function over those of the
    class over those of the module."""
    for fixture, marker in MARKS.items():
        if fixture not in metafunc.fixturenames:
            continue
        settings: dict[str, Any] = {}
        for mark in reversed(list(metafunc.definition.iter_markers(marker))):
            if mark.args:
                raise pytest.UsageError(f"pytest.mark.{marker} takes settings by name: num_partitions=3")
            settings |= mark.kwargs
        if settings:
            metafunc.parametrize(fixture, [settings], indirect=True, scope="session", ids=[marker])


@pytest.fixture(scope="session")
def odradek_broker(request: pytest.FixtureRequest) -> "Broker":
    """A broker in a separate process: `bootstrap` is its address; it can be crashed, paused and restarted."""
    return request.config.stash[BROKERS].broker(getattr(request, "param", {}))


@pytest.fixture(scope="session")
def odradek_cluster(request: pytest.FixtureRequest) -> "Cluster":
    """Three brokers in separate processes, which can be crashed, paused, cut off and restarted one by one."""
    return request.config.stash[BROKERS].cluster(getattr(request, "param", {}))


@pytest.fixture
def odradek_topic(request: pytest.FixtureRequest, odradek_broker: "Broker") -> str:
    """The name of a topic that only this test uses."""
    return odradek_broker.create_topic(**_topic_marked(request))


@pytest.fixture
def odradek_cluster_topic(request: pytest.FixtureRequest, odradek_cluster: "Cluster") -> str:
    """The same on the cluster."""
    return odradek_cluster.create_topic(**_topic_marked(request))


def _topic_marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    mark = request.node.get_closest_marker(TOPIC_MARK)
    return dict(mark.kwargs) if mark else {}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[BROKERS].begin_test()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Faults are undone before fixtures are torn down, which may need the broker, and after."""
    brokers = item.config.stash[BROKERS]
    try:
        brokers.heal()
        return (yield)
    finally:
        brokers.heal()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and MARKS.keys() & set(getattr(item, "fixturenames", ())):
        report.sections.append((LOG_SECTION, item.config.stash[BROKERS].logged()))
    return report
