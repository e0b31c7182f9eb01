"""Three nodes that keep records, through a few faults under load. `make chaos` goes on for longer."""

import random
from pathlib import Path

from tests.processes.record_faults import SHORT, play


def test_nothing_acknowledged_is_lost_while_nodes_are_killed_paused_and_cut_off(tmp_path: Path) -> None:
    print(play(tmp_path, iter(SHORT), random.Random(1)))
