"""Rules and fixtures for all tests.

Property tests take the same examples every time, so that a red run can be repeated. To look for new ones:
HYPOTHESIS_PROFILE=explore python -m pytest tests/storage

A traceback in a broker's log is an error that nobody expected: the test during which it was written fails, whether
the broker runs in a process of its own or in the test's, and whether this suite or `odradek.testing` started it. What
shared brokers write when they end fails the next test, or the last one. A test that plants a traceback is marked
`plants_traceback`.
"""

import logging
import os
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import settings

from odradek.testing import Broker
from tests.selection import longest_first, refuse_spark_elsewhere
from tests.support import TRACEBACK, RunningBroker

settings.register_profile("repeat", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))
os.environ["ODRADEK_CLASS_ARCHIVE"] = "off"  # tests depend on nothing that earlier runs left


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    refuse_spark_elsewhere(config.rootpath, items)
    longest_first(items)


class Tracebacks(logging.Handler):
    """Takes note of exceptions that were logged in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0] is not None:
            self.found.append(logging.Formatter("%(name)s: %(message)s").format(record))


logs_of_closed: list[
    str
] = []  # of brokers of `odradek.testing`, whose files are gone; those with a traceback


def found_in_logs() -> list[str]:
    """Return what was written since the last call."""
    found = RunningBroker.all_new_tracebacks() + logs_of_closed
    logs_of_closed.clear()
    return found


@pytest.fixture(scope="session", autouse=True)
def closed_brokers_are_searched() -> Iterator[None]:
    close = Broker.close

    def search_and_close(broker: Broker) -> None:
        if TRACEBACK in broker.log:
            logs_of_closed.append(broker.log)
        close(broker)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Broker, "close", search_and_close)
        yield
    found = found_in_logs()
    assert not found, "a traceback was logged:\n" + "\n".join(found)


@pytest.fixture(autouse=True)
def no_tracebacks(request: pytest.FixtureRequest) -> Iterator[None]:
    handler = Tracebacks()
    loggers = [logging.getLogger("odradek"), logging.getLogger("asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
    yield
    for logger in loggers:
        logger.removeHandler(handler)
    found = handler.found + found_in_logs()
    if found and request.node.get_closest_marker("plants_traceback") is None:
        pytest.fail("a traceback was logged:\n" + "\n".join(found))


@pytest.fixture(scope="session")
def java() -> None:
    from odradek.spark.environment import missing

    reason = missing()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:12]}"
