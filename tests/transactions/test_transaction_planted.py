"""Bugs that are planted in the product are caught by the simulation of transactions, each in a process of its own."""

import subprocess
import sys

import pytest

from tests.transactions.planted import PLANTED
from tests.transactions.test_transaction_seeds import CHUNK, CHUNKS


@pytest.mark.parametrize("name", [planted.name for planted in PLANTED])
def test_the_simulation_finds_a_planted_bug(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.transactions.planted", name],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_the_product_as_it_is_passes_the_seeds_that_catch_bugs() -> None:
    """They are among those that `test_transaction_seeds` runs."""
    assert all(planted.seed < CHUNK * CHUNKS for planted in PLANTED)
