"""Tests of how many nodes a cluster may lose, and what limits that."""

import pytest

from odradek.admin.tolerance import Copies, tolerance

THREE_OF_THREE = Copies("t", 3, 2)


@pytest.mark.parametrize(
    ("partitions", "voters", "alive", "writes", "data"),
    [
        ([THREE_OF_THREE], 3, 3, 1, 1),
        ([THREE_OF_THREE], 5, 5, 1, 2),
        ([THREE_OF_THREE], 0, None, 1, 2),  # a cluster that does not report its quorum
        ([THREE_OF_THREE], 1, 1, 0, 0),  # three copies, but one voter
        ([Copies("t", 2, 2)], 2, 2, 0, 1),  # what is left of three nodes if one is removed without care
        ([Copies("t", 2, 1)], 2, 2, 0, 1),
        ([Copies("t", 1, 1)], 3, 3, 0, 0),
        ([THREE_OF_THREE, Copies("u", 1, 1)], 3, 3, 0, 0),  # the weakest decides
        ([Copies("t", 2, 2)], 3, 2, 0, 1),  # one node is down
        ([Copies("t", 1, 2)], 3, 1, 0, 0),
        ([], 3, 3, 1, 1),
    ],
)
def test_nodes_that_may_be_lost(
    partitions: list[Copies], voters: int, alive: int | None, writes: int, data: int
) -> None:
    found = tolerance(partitions, voters, alive)
    assert (found.writes, found.data) == (writes, data)


def test_the_sentence_names_what_limits_it() -> None:
    assert str(tolerance([THREE_OF_THREE, Copies("u", 2, 2)], 3)) == (
        "may lose 0 nodes without refusing writes, 1 without losing data (limited by 2 in-sync replicas, 2 needed (u); "
        "3 voters in the metadata quorum)"
    )
    assert str(tolerance([Copies(name, 3, 1) for name in "abcde"], 3, 2)) == (
        "may lose 0 nodes without refusing writes, 1 without losing data (limited by 3 voters in the metadata quorum, "
        "of which 1 is gone)"
    )
    assert "(a, b, c and 2 more)" in str(tolerance([Copies(name, 1, 1) for name in "abcde"], 3))


def test_less_of_either_is_worse() -> None:
    three, two = tolerance([THREE_OF_THREE], 3), tolerance([Copies("t", 2, 2)], 2)
    assert two.is_worse_than(three)
    assert not three.is_worse_than(two)
    assert not three.is_worse_than(three)
