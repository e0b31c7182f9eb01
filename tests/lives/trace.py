"""Live some lives from a seed, and print a hash of all that happened: requests, responses, times, files, log lines.

python -m tests.lives.trace SEED [ACTIONS]
"""

import hashlib
import logging
import random
import sys

from tests.lives.homes import SimulatedHome
from tests.lives.life import SETTINGS, Lives

from odradek.host.log_lines import NodeIdFilter
from odradek.host.simulated import repeatable

LIVES = 3
ACTIONS = 40


class Recorder(logging.Handler):
    """Hashes events, and log lines as events."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(levelname)s %(node)s%(name)s %(message)s"))
        self.addFilter(NodeIdFilter())
        self.hash = hashlib.blake2b(digest_size=16)
        self.count = 0
        self.lines: list[str] = []

    def record(self, event: bytes) -> None:
        self.count += 1
        self.hash.update(event)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))
        self.record(self.lines[-1].encode())


def trace(seed: int, actions: int = ACTIONS) -> Recorder:
    recorder = Recorder()
    logger = logging.getLogger("odradek")
    level = logger.level
    logger.addHandler(recorder)
    logger.setLevel(logging.INFO)
    rng = random.Random(seed)
    try:
        with repeatable():
            home = SimulatedHome(SETTINGS, rng, recorder.record)
            with Lives(home, rng) as lives:
                for _ in range(LIVES):
                    lives.live(actions)
            home.stop()
    finally:
        logger.removeHandler(recorder)
        logger.setLevel(level)
    return recorder


if __name__ == "__main__":
    found = trace(int(sys.argv[1]), *map(int, sys.argv[2:]))
    print(found.count, found.hash.hexdigest())
