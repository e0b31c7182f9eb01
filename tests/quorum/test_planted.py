"""Bugs that are planted in the quorum are caught, each in a process of its own, by the checks that always run."""

import subprocess
import sys

import pytest

from tests.quorum.planted import PLANTED
from tests.quorum.run import run_seeds


@pytest.mark.parametrize("name", [planted.name for planted in PLANTED])
def test_the_simulation_finds_a_planted_bug(name):
    done = subprocess.run(
        [sys.executable, "-m", "tests.quorum.planted", name], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_the_product_as_it_is_passes_the_seeds_that_catch_bugs():
    for outcome in run_seeds({planted.seed: None for planted in PLANTED}):
        assert outcome.failure is None, outcome.explain()
