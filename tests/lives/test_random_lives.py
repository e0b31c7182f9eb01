"""A few lives of a broker from fixed seeds; `python -m tests.lives --seconds 3600` goes on with new ones."""

import random
from pathlib import Path

import pytest

from tests.lives.homes import Home, ProcessHome
from tests.lives.life import SETTINGS, Lives
from tests.support import running_broker

LIVES = 5
ACTIONS = 60


def live(home: Home, rng: random.Random) -> None:
    with Lives(home, rng) as lives:
        try:
            for _ in range(LIVES):
                lives.live(ACTIONS)
        except BaseException:
            print("\n".join(lives.trace))
            raise
        assert lives.acknowledged > 100


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6))])
def test_what_was_acknowledged_outlives_kill_9(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    with running_broker(tmp_path, **SETTINGS) as broker:
        live(ProcessHome(broker, rng), rng)
