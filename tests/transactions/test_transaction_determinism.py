"""One seed, one run with transactions: in two processes whose strings hash differently, everything is the same."""

from tests.simulation.seeds import hash_in_a_process


def test_the_same_seed_gives_the_same_run_in_every_process() -> None:
    assert hash_in_a_process("transactions", 2, 1) == hash_in_a_process("transactions", 2, 2)
