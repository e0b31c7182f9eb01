"""Live on with new seeds for as long as wanted, and tell how much was survived.

python -m tests.lives --seconds 3600 --seed 1000
"""

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lives.homes import Home, ProcessHome
from tests.lives.life import SETTINGS, Lives
from tests.support import running_broker

LIVES_OF_A_SEED = 10
ACTIONS = 80


@contextmanager
def process(rng: random.Random) -> Iterator[Home]:
    with tempfile.TemporaryDirectory() as directory, running_broker(Path(directory), **SETTINGS) as broker:
        try:
            yield ProcessHome(broker, rng)
            assert not broker.new_tracebacks(), "a traceback was logged"
        except BaseException:
            print(f"the broker's log:\n{broker.log}")
            raise


def live(home: Home, rng: random.Random) -> int:
    """Live, and return how many records were acknowledged."""
    with Lives(home, rng) as lives:
        try:
            for _ in range(LIVES_OF_A_SEED):
                lives.live(ACTIONS)
        except BaseException:
            print("\n".join(lives.trace))
            raise
        return lives.acknowledged


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60, help="begin no new seed after this time")
    parser.add_argument("--seed", type=int, default=1000, help="the first seed")
    options = parser.parse_args()
    started, seed, acknowledged = time.monotonic(), options.seed, 0
    while time.monotonic() - started < options.seconds:
        rng = random.Random(seed)
        try:
            with process(rng) as home:
                acknowledged += live(home, rng)
        except Exception as error:
            print(f"seed {seed}: {error!r}")
            return 1
        seed += 1
    seeds, minutes = seed - options.seed, (time.monotonic() - started) / 60
    print(
        f"{seeds} seeds, {seeds * LIVES_OF_A_SEED} lives in {minutes:.1f} minutes: "
        f"{acknowledged} acknowledged records, none lost, none changed, none back from the dead"
    )
    return 0


raise SystemExit(main())
