"""The table of moves, and what each role says to a vote."""

from itertools import product

import pytest

from odradek.raft.election import ElectionState
from odradek.raft.requests import Requests
from odradek.raft.roles import (
    MOVES,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
    Votes,
    check_move,
    election_of,
)
from odradek.raft.voters import VoterSet
from tests.raft.cluster import key

EPOCH = 5


def role_of(kind, epoch=EPOCH):
    return {
        Unattached: lambda: Unattached(epoch, 0),
        Prospective: lambda: Prospective(epoch, 0),
        Candidate: lambda: Candidate(epoch, 0, key(1)),
        Leader: lambda: Leader(epoch, 1, 0, 0, 0),
        Follower: lambda: Follower(epoch, 2, 0),
        Resigned: lambda: Resigned(epoch, 1, 0),
    }[kind]()


def test_no_move_goes_back_and_nobody_leads_without_being_elected():
    for before, after in product(MOVES, MOVES):
        with pytest.raises(AssertionError):
            check_move(role_of(before), role_of(after, EPOCH - 1))
    assert [kind for kind in MOVES if Leader in MOVES[kind]] == [Candidate]
    assert [kind for kind in MOVES if Candidate in MOVES[kind]] == [Prospective], "never without a pre-vote"
    assert [kind for kind in MOVES if Resigned in MOVES[kind]] == [Leader]


@pytest.mark.parametrize("kind", [Leader, Resigned, Follower])
def test_who_knows_the_leader_of_an_epoch_never_forgets_it_within_the_epoch(kind):
    with pytest.raises(AssertionError):
        check_move(role_of(kind), role_of(Unattached))


@pytest.mark.parametrize(
    ("role", "pre_vote", "vote"),
    [
        (Unattached(EPOCH, 0), True, True),
        (Unattached(EPOCH, 0, key(2)), True, True),
        (Unattached(EPOCH, 0, key(3)), True, False),
        (Prospective(EPOCH, 0), True, True),
        (Prospective(EPOCH, 0, leader_id=9), True, False),
        (Prospective(EPOCH, 0, voted=key(3)), True, False),
        (Candidate(EPOCH, 0, key(1)), True, False),
        (Leader(EPOCH, 1, 0, 0, 0), False, False),
        (Follower(EPOCH, 9, 0), True, False),
        (Follower(EPOCH, 9, 0, has_fetched=True), False, False),
        (Follower(EPOCH, 2, 0, voted=key(2)), True, True),
        (Resigned(EPOCH, 1, 0), True, False),
    ],
)
def test_what_is_granted_to_2_in_the_same_epoch(role, pre_vote, vote):
    assert role.grants(key(2), is_pre_vote=True, is_up_to_date=True) is pre_vote
    assert role.grants(key(2), is_pre_vote=False, is_up_to_date=True) is vote
    assert not role.grants(key(2), is_pre_vote=True, is_up_to_date=False)


def test_what_survives_a_crash():
    directory_id = key(2).directory_id
    assert election_of(Unattached(3, 0)) == ElectionState(3)
    assert election_of(Unattached(3, 0, key(2))) == ElectionState(3, -1, 2, directory_id)
    assert election_of(Candidate(3, 0, key(2))) == ElectionState(3, -1, 2, directory_id)
    assert election_of(Follower(3, 9, 0, key(2))) == ElectionState(3, 9, 2, directory_id)
    assert election_of(Prospective(3, 0, 9, key(2))) == ElectionState(3, 9, 2, directory_id)
    assert election_of(Leader(3, 1, 0, 0, 0)) == election_of(Resigned(3, 1, 0)) == ElectionState(3, 1)


@pytest.mark.parametrize(("voters", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_an_election_is_won_by_a_majority_and_lost_when_there_can_be_none(voters, needed):
    electorate = VoterSet.of(*(key(n) for n in range(voters)))
    votes = Votes()
    for n in range(needed):
        assert not votes.is_won(electorate)
        votes.granted.add(key(n))
    assert votes.is_won(electorate) and not votes.is_lost(electorate)
    against = Votes(rejected={key(n) for n in range(voters - needed + 1)})
    assert against.is_lost(electorate)
    against.rejected.pop()
    assert not against.is_lost(electorate)


def test_one_request_at_a_time_to_each_and_a_pause_after_a_failure():
    requests = Requests(timeout_ms=100, backoff_ms=10, last_id=7)
    assert requests.start(2, now_ms=0) == 8
    assert not requests.may_send(2, 50) and requests.may_send(3, 50)
    assert not requests.complete(2, 7) and not requests.complete(3, 8)
    assert requests.complete(2, 8) and not requests.complete(2, 8), "once"
    requests.start(2, now_ms=50)
    requests.expire(150)
    assert not requests.may_send(2, 159) and requests.may_send(2, 160)
    assert not requests.complete(2, 9), "it was given up"
