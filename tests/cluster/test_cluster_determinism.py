"""One seed, one run of a cluster: in two processes whose strings hash differently, everything is the same."""

import os
import subprocess
import sys

import pytest


def hash_in_a_process(seed: int, hash_seed: int) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster", str(seed), "--hash"],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=True,
        timeout=250,
    )
    return done.stdout


@pytest.mark.parametrize("seed", [1, 4])
def test_the_same_seed_gives_the_same_run_in_every_process(seed: int) -> None:
    assert hash_in_a_process(seed, 1) == hash_in_a_process(seed, 2)
