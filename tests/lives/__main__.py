"""Live on with new seeds for as long as wanted, and tell how much was survived.

python -m tests.lives --seconds 3600 --seed 1000
"""

import argparse
import tempfile
import time
from pathlib import Path

from tests.lives.life import SETTINGS, Lives
from tests.support import running_broker

LIVES_OF_A_SEED = 10
ACTIONS = 80


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60, help="begin no new seed after this time")
    parser.add_argument("--seed", type=int, default=1000, help="the first seed")
    options = parser.parse_args()
    started, seed, lives_lived, acknowledged = time.monotonic(), options.seed, 0, 0
    while time.monotonic() - started < options.seconds:
        with (
            tempfile.TemporaryDirectory() as directory,
            running_broker(Path(directory), **SETTINGS) as broker,
            Lives(broker, seed) as lives,
        ):
            try:
                for _ in range(LIVES_OF_A_SEED):
                    lives.live(ACTIONS)
                    lives_lived += 1
            except BaseException as error:
                print("\n".join(lives.trace))
                print(f"seed {seed}: {error!r}\nthe broker's log:\n{broker.log}")
                return 1
            acknowledged += lives.acknowledged
        seed += 1
    minutes = (time.monotonic() - started) / 60
    print(
        f"{seed - options.seed} seeds, {lives_lived} lives in {minutes:.1f} minutes: "
        f"{acknowledged} acknowledged records, none lost, none changed, none back from the dead"
    )
    return 0


raise SystemExit(main())
