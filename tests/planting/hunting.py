"""Plant a bug, and let its simulation look for it in the seeds that `make test-all` runs anyway, or run its script."""

import importlib
import logging
from collections.abc import Iterator
from typing import NamedTuple

from tests.planting.loading import plant
from tests.planting.planted import Planted
from tests.planting.suites import Suite

# The change itself may raise these if it does not fit the code around it: that is no bug that was found.
MISFITS = (NameError, AttributeError, TypeError, ImportError, SyntaxError)
TESTS_FAILED = 1  # pytest's exit code


class Found(NamedTuple):
    by: str  # a seed, or a script
    failure: str


def hunt(suite: Suite, bug: Planted) -> Iterator[Found | None]:
    """Yield, for every seed, how it has caught the bug; None if it has not. In a fresh process only."""
    plant(bug.changes)
    logging.disable(logging.WARNING)
    if bug.script:
        yield _run_script(bug.script)
        return
    simulation = importlib.import_module(f"{suite.folders[0].replace('/', '.')}.run")
    for outcome in simulation.hunt(bug.among):
        if isinstance(outcome.failure, MISFITS):
            raise outcome.failure
        yield Found(f"seed {outcome.seed}", _in_a_line(outcome.failure)) if outcome.failure else None


def _run_script(script: str) -> Found | None:
    import pytest

    class Failures:
        found: list[BaseException] = []

        def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
            if call.excinfo is not None:
                self.found.append(call.excinfo.value)

    path, _, name = script.partition("::")
    # plain: pytest would load the modules itself to rewrite their assertions, without the bug.
    code = pytest.main(["-q", "--assert=plain", "--no-header", "--tb=line", path, "-k", name], [Failures()])
    if code not in (0, TESTS_FAILED):
        raise AssertionError(f"pytest {path} -k {name} ended with {code}")
    for failure in Failures.found:
        if isinstance(failure, MISFITS):
            raise failure
    return Found(script, _in_a_line(Failures.found[0])) if Failures.found else None


def _in_a_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
