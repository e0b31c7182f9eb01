"""Two clusters and a mirror between them, through every fault once. `make chaos ARGS=--mirror` goes on for longer."""

import random
from pathlib import Path

import pytest

from tests.processes.mirror_play import FAULTS, play


@pytest.mark.long
def test_a_mirror_between_two_clusters_is_exact_through_faults(tmp_path: Path) -> None:
    assert play(tmp_path, iter(FAULTS), random.Random(1)) > 1000
