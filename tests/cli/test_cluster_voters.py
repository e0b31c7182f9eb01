"""Which controllers get a vote when a cluster grows, shrinks, or replaces a disk."""

from uuid import UUID

import pytest

from odradek.admin.voters import SILENT_MS, QuorumState, Replica, followers_alive, odd
from odradek.wire.messages.describe_quorum import PartitionDataInResponse, ReplicaState


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


NOW_MS = 1_700_000_000_000


def fetched(node_id: int, directory: int, ago_ms: int) -> ReplicaState:
    return ReplicaState(node_id, UUID(int=directory), 7, NOW_MS - ago_ms, NOW_MS - ago_ms)


def alive(leader_id: int, voters: list[ReplicaState], observers: list[ReplicaState]) -> list[tuple[int, int]]:
    found = PartitionDataInResponse(leader_id=leader_id, current_voters=voters, observers=observers)
    return [(one.replica_id, one.replica_directory_id.int) for one in followers_alive(found)]


def test_a_disk_that_is_gone_gets_no_vote_though_the_leader_still_remembers_it() -> None:
    """Its node has voted with its new disk for a moment; taking that vote away would leave the quorum with one less."""
    voters = [fetched(1, 1, 0), fetched(2, 202, 100), fetched(3, 3, 200)]
    assert alive(1, voters, [fetched(2, 2, 5_000)]) == []
    assert alive(1, voters, [fetched(4, 404, 300), fetched(4, 4, 4_000)]) == [(4, 404)]


def test_a_disk_that_is_new_is_the_node_though_its_old_one_still_votes() -> None:
    voters = [fetched(1, 1, 0), fetched(2, 2, 5_000), fetched(3, 3, 200)]
    assert alive(1, voters, [fetched(2, 202, 100)]) == [(2, 202)]
    assert alive(1, voters, [fetched(2, 202, SILENT_MS)]) == []


def test_the_leader_is_itself_whenever_it_fetched() -> None:
    """Other systems do not say when; the one without a vote is what it was before it led."""
    leader = ReplicaState(1, UUID(int=101), 7, -1, NOW_MS)
    assert alive(1, [leader, fetched(2, 2, 100)], [fetched(1, 1, 3_000)]) == []
