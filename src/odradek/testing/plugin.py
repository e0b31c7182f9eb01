"""The pytest plugin: a broker for the session, a fresh topic for each test.

    def test_orders(odradek_broker, odradek_topic):
        producer = Producer({"bootstrap.servers": odradek_broker.bootstrap})
        producer.produce(odradek_topic, "4 spools")

    @pytest.mark.odradek(auto_create_topics_enable=False)        # a broker with these settings
    @pytest.mark.odradek_topic(partitions=3, config={"cleanup.policy": "compact"})

A broker is started when a test first asks for one, and serves all tests with the same settings; under xdist each
worker has its own. Faults (crash, pause) are undone at the end of each test, and the broker's log of a failed test is
attached to its report. Until a test asks for a broker, this costs an import of pytest.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from odradek.testing.broker import Broker

BROKER_FIXTURE = "odradek_broker"
TOPIC_FIXTURE = "odradek_topic"
BROKER_MARK = "odradek"
TOPIC_MARK = "odradek_topic"
LOG_SECTION = "Odradek broker log"


class Brokers:
    """The brokers of a session, one for each set of settings that tests have asked for."""

    def __init__(self) -> None:
        self._brokers: dict[tuple[tuple[str, str], ...], Broker] = {}
        self._log_starts: dict[Broker, int] = {}

    def get(self, settings: dict[str, Any]) -> "Broker":
        from odradek.testing.broker import Broker, as_settings

        key = tuple(sorted(as_settings(settings).items()))
        if key not in self._brokers:
            broker = Broker(settings)
            try:
                broker.start()
            except BaseException:
                broker.close()
                raise
            self._brokers[key] = broker
        return self._brokers[key]

    def begin_test(self) -> None:
        self._log_starts = {broker: broker.log_size for broker in self._brokers.values()}

    def logged(self) -> str:
        """The log of all of them since the test began."""
        return "".join(broker.log_since(self._log_starts.get(broker, 0)) for broker in self._brokers.values())

    def heal(self) -> None:
        for broker in self._brokers.values():
            broker.heal()

    def close(self) -> None:
        for broker in self._brokers.values():
            broker.close()
        self._brokers.clear()


BROKERS = pytest.StashKey[Brokers]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[BROKERS] = Brokers()
    config.addinivalue_line(
        "markers",
        "odradek(**settings): the test's broker has these settings, by Kafka's names with '_' for '.'",
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
    if BROKER_FIXTURE not in metafunc.fixturenames:
        return
    settings: dict[str, Any] = {}
    for mark in reversed(list(metafunc.definition.iter_markers(BROKER_MARK))):
        if mark.args:
            raise pytest.UsageError("pytest.mark.odradek takes settings by name: odradek(num_partitions=3)")
        settings |= mark.kwargs
    if settings:
        metafunc.parametrize(BROKER_FIXTURE, [settings], indirect=True, scope="session", ids=["odradek"])


@pytest.fixture(scope="session")
def odradek_broker(request: pytest.FixtureRequest) -> "Broker":
    """A broker in a separate process: `bootstrap` is its address; it can be crashed, paused and restarted."""
    return request.config.stash[BROKERS].get(getattr(request, "param", {}))


@pytest.fixture
def odradek_topic(request: pytest.FixtureRequest, odradek_broker: "Broker") -> str:
    """The name of a topic that only this test uses."""
    mark = request.node.get_closest_marker(TOPIC_MARK)
    return odradek_broker.create_topic(**(mark.kwargs if mark else {}))


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
    if report.failed and BROKER_FIXTURE in getattr(item, "fixturenames", ()):
        report.sections.append((LOG_SECTION, item.config.stash[BROKERS].logged()))
    return report
