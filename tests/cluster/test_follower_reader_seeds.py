"""Simulated clusters whose consumers read from leaders and followers. One seed gives the same run every time."""

import pytest

from tests.cluster.follower_readers import FROM_FOLLOWERS, FollowerStorm
from tests.simulation.seeds import run_plan


@pytest.mark.parametrize("seed", range(4))
def test_whoever_serves_them_consumers_see_what_is_committed(seed: int) -> None:
    outcome = run_plan(seed, lambda: FollowerStorm(seed), "sim-cluster")
    if outcome.failure is not None:
        raise outcome.failure
    assert outcome.counts[FROM_FOLLOWERS] > 0
