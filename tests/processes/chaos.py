"""Do things to three nodes that keep records under load, by chance, and tell how much was survived.

python -m tests.processes.chaos --seconds 600 --seed 7 [--secure | --mirror]
"""

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.processes import mirror_play, secure_play
from tests.processes.disk_faults import DAMAGE, fill_the_disk, small_disks
from tests.processes.record_faults import FAULTS, in_turn, name_of, play
from tests.processes.record_moves import MOVES
from tests.support import RunningBroker

DEFAULT_SECONDS = 200
NODE_IDS = range(1, 4)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=DEFAULT_SECONDS, help="begin no new fault after this time"
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument(
        "--secure",
        action="store_true",
        help="certificates between nodes; TLS, passwords and ACLs for clients",
    )
    parser.add_argument("--mirror", action="store_true", help="two clusters, and a mirror between them")
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.seconds:g} s", flush=True)
    rng = random.Random(options.seed)
    if options.secure:
        return play_secure(rng, options.seconds)
    if options.mirror:
        return play_mirror(rng, options.seconds)
    with tempfile.TemporaryDirectory() as directory, small_disks(Path(directory), NODE_IDS) as can_fill:
        faults = [*FAULTS, *MOVES, *DAMAGE]
        if can_fill:
            faults.append(fill_the_disk)
        else:
            print("file systems cannot be mounted here: no disk becomes full", flush=True)
        survived = play(Path(directory), announced(in_turn(rng, faults), options.seconds), rng)
        tracebacks = RunningBroker.all_new_tracebacks()
        assert not tracebacks, f"a traceback was logged:\n{tracebacks[0]}"
    print(survived)
    return 0


def play_secure(rng: random.Random, seconds: float) -> int:
    faults = announced(in_turn(rng, list(secure_play.FAULTS)), seconds)
    with tempfile.TemporaryDirectory() as directory:
        ledger = secure_play.play(Path(directory), faults, rng)
        tracebacks = RunningBroker.all_new_tracebacks()
        assert not tracebacks, f"a traceback was logged:\n{tracebacks[0]}"
    print(f"{ledger.acknowledged} acknowledged records were read back in order")
    return 0


def play_mirror(rng: random.Random, seconds: float) -> int:
    faults = announced(in_turn(rng, list(mirror_play.FAULTS)), seconds)
    with tempfile.TemporaryDirectory() as directory:
        copied = mirror_play.play(Path(directory), faults, rng)
        tracebacks = RunningBroker.all_new_tracebacks()
        assert not tracebacks, f"a traceback was logged:\n{tracebacks[0]}"
    print(f"{copied} records are in the copy, each once, in order")
    return 0


def announced(faults: Iterator[Any], seconds: float) -> Iterator[Any]:
    """Yield faults for so long, and each with a line when it begins."""
    started = time.monotonic()
    for fault in faults:
        passed = time.monotonic() - started
        if passed > seconds:
            return
        print(f"{passed:5.0f} s  {name_of(fault)}", flush=True)
        yield fault


if __name__ == "__main__":
    raise SystemExit(main())
