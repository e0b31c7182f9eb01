"""Go on doing things to a quorum of real nodes under load, by chance, and tell how much was survived.

python -m tests.processes --seconds 600 --seed 1000
"""

import argparse
import random
import tempfile
import time
from pathlib import Path

from tests.processes.faults import by_chance, play
from tests.support import RunningBroker

FAULTS_OF_A_SEED = 8


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=300, help="begin no new seed after this time")
    parser.add_argument("--seed", type=int, default=1000, help="the first seed")
    options = parser.parse_args()
    started, seed = time.monotonic(), options.seed
    while time.monotonic() - started < options.seconds:
        faults = by_chance(random.Random(seed), FAULTS_OF_A_SEED)
        try:
            with tempfile.TemporaryDirectory() as directory:
                outcome = play(Path(directory), faults)
                tracebacks = RunningBroker.all_new_tracebacks()
                assert not tracebacks, f"a traceback was logged:\n{tracebacks[0]}"
                RunningBroker.known.clear()
        except Exception as error:
            print(f"seed {seed}, {', '.join(fault.__name__ for fault in faults)}: {error!r}")
            return 1
        print(f"seed {seed}: {outcome}", flush=True)
        seed += 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
