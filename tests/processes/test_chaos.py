"""Three nodes that keep records, through a few faults under load. `make chaos` goes on for longer."""

import random
from pathlib import Path

from tests.processes.record_faults import SHORT, play
from tests.processes.record_moves import move_to_a_killed_node


def test_nothing_acknowledged_is_lost_while_nodes_are_killed_paused_cut_off_and_drained(
    tmp_path: Path,
) -> None:
    print(play(tmp_path, iter((*SHORT, move_to_a_killed_node)), random.Random(1)))
