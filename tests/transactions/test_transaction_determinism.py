"""One seed, one run with transactions: in two processes whose strings hash differently, everything is the same."""

import os
import subprocess
import sys


def hash_in_a_process(seed: int, hash_seed: int) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.transactions", str(seed), "--hash"],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=True,
        timeout=250,
    )
    return done.stdout


def test_the_same_seed_gives_the_same_run_in_every_process() -> None:
    assert hash_in_a_process(2, 1) == hash_in_a_process(2, 2)
