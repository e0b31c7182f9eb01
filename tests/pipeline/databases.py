"""A real PostgreSQL for tests, where there is one; where there could be one, in CI, its absence is a failure."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tools.postgresql import Missing, PostgreSQL, programs, running_postgresql


@contextmanager
def postgresql_or_skip() -> Iterator[PostgreSQL]:
    if programs() is None:
        problem = str(Missing("PostgreSQL is not installed: run 'make postgresql'"))
        assert "CI" not in os.environ, problem
        pytest.skip(problem)
    with running_postgresql("fsync=off") as server:
        yield server
