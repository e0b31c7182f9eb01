"""One seed, one run: in two processes whose strings hash differently, every request, response, file, time and log line
is the same."""

import pytest

from tests.simulation.run import run_seed
from tests.simulation.seeds import hash_in_a_process
from tests.simulation.trace import Trace


@pytest.mark.parametrize("seed", [7, *(pytest.param(seed, marks=pytest.mark.long) for seed in (11, 12))])
def test_the_same_seed_gives_the_same_run_in_every_process(seed: int) -> None:
    assert hash_in_a_process("simulation", seed, 1) == hash_in_a_process("simulation", seed, 2)


def trace(seed: int) -> Trace:
    found = Trace()
    run_seed(seed, found)
    return found


def test_another_seed_gives_another_run() -> None:
    assert trace(1).hash.digest() != trace(2).hash.digest()


def test_simulated_brokers_compact_and_their_log_lines_carry_their_id() -> None:
    lines = [line for seed in range(3) for line in trace(seed).lines if "  log  " in line]
    assert any("compacted " in line and " up to offset " in line for line in lines)
    assert all("[node 1] " in line for line in lines)
