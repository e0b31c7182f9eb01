"""Some hundreds of simulated quorums; `make sim-quorum ARGS='--seeds 1000:20000'` goes on with others."""

import logging
import os
import subprocess
import sys

import pytest

from tests.quorum.run import SEEDS, Totals, run_seed, run_seeds
from tests.selection import chunks

CHUNK = 20
FOUND = [  # and what each found
    20422,  # segments removed without a sync between them: a crash left a hole in a log that was cut
    884,  # an invariant that expected of a leader elected late what a later leader had committed
    100332,  # a torn base offset, which the CRC does not cover, was taken for damage
    206014,  # a kill left the epochs of a log that an installed snapshot had emptied: it ended in too old an epoch
    206314,  # the same
    205897,  # a leader whose first record did not fit on the disk refused the records of older epochs afterwards
    100043,  # the sync of a roll hid one that had failed: a crash left a hole before the new segment
]


@pytest.fixture(autouse=True)
def _no_log_lines(caplog):
    """Silence the lines about what recovery cuts: that is all in the day's work here, and there is much of it."""
    caplog.set_level(logging.ERROR)


@pytest.mark.parametrize("first", chunks(SEEDS, CHUNK))
def test_a_quorum_keeps_its_promises_whatever_befalls_it(first):
    totals = Totals()
    for outcome in run_seeds(range(first, first + CHUNK)):
        totals.add(outcome)
        if outcome.failure is not None:
            pytest.fail(outcome.explain(), pytrace=False)
    print(totals)
    assert totals.worthy > 0.85 * CHUNK, "a seed without an election after a crash does not count"
    assert totals.counts["committed records"] > 40 * CHUNK
    assert totals.share("crashes with a loss") > 0.3
    for what in (
        "truncations",
        "snapshots taken",
        "snapshots installed",
        "voter changes",
        "clean stops",
        "pauses",
        "damaged logs refused",
    ):
        assert totals.share(what) >= 0.1, what  # two of twenty seeds


@pytest.mark.parametrize("seed", FOUND)
def test_what_a_seed_once_found_does_not_come_back(seed):
    outcome = run_seed(seed)
    if outcome.failure is not None:
        pytest.fail(outcome.explain(), pytrace=False)


def test_disks_are_wiped_in_some_runs():
    assert sum(run_seed(seed).counts["wiped disks"] for seed in range(40)) > 0


@pytest.mark.parametrize("seed", [3, 8])
def test_the_same_seed_gives_the_same_run_in_every_process(seed):
    command = [sys.executable, "-m", "tests.quorum", str(seed), "--hash"]
    hashes = {
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for hash_seed in (1, 2)
    }
    assert len(hashes) == 1
