"""One seed, one run of a cluster: in two processes whose strings hash differently, everything is the same."""

import pytest

from tests.simulation.seeds import hash_in_a_process


@pytest.mark.parametrize("seed", [1, pytest.param(4, marks=pytest.mark.long)])
def test_the_same_seed_gives_the_same_run_in_every_process(seed: int) -> None:
    assert hash_in_a_process("cluster", seed, 1) == hash_in_a_process("cluster", seed, 2)
