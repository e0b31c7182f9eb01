"""Which controllers get a vote when a cluster grows, shrinks, or replaces a disk."""

from uuid import UUID

import pytest

from odradek.cli.cluster_voters import QuorumState, Replica, odd


def quorum(voters: list[int], candidates: list[int]) -> QuorumState:
    return QuorumState(
        [Replica(one, UUID(int=one)) for one in voters],
        [Replica(one, UUID(int=100 + one)) for one in candidates],
        "CONTROLLER",
        {},
    )


def wanted(voters: list[int], candidates: list[int], *leaving: int) -> list[int]:
    return [one.node_id for one in quorum(voters, candidates).wanted(leaving)]


@pytest.mark.parametrize(
    ("voters", "candidates", "expected"),
    [
        ([1], [2, 3], [2, 3]),
        ([1], [2], []),  # two of two are worse than one of one
        ([1, 2], [3], [3]),
        ([1, 2, 3], [4], []),
        ([1, 2, 3], [4, 5, 6, 7], [4, 5]),
        ([1, 2, 3], [], []),
    ],
)
def test_voters_become_an_odd_number(voters: list[int], candidates: list[int], expected: list[int]) -> None:
    assert wanted(voters, candidates) == expected


def test_a_node_with_a_new_disk_takes_the_place_of_its_old_self() -> None:
    found = quorum([1, 2, 3], [2])
    assert [one.node_id for one in found.replaced()] == [2]
    assert found.wanted() == [Replica(2, UUID(int=102))]


def test_whoever_waits_for_a_vote_gets_that_of_a_node_that_leaves() -> None:
    assert wanted([1, 2, 3], [4], 3) == [4]
    assert wanted([1, 2, 3], [], 3) == []
    assert wanted([1], [2], 1) == [2]
    assert [odd(count) for count in range(1, 7)] == [1, 1, 3, 3, 5, 5]
