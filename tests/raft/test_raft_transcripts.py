"""The quorum as transcripts: who says what to whom, and what comes of it. The order is that of the Raft paper.

`cluster.play()` delivers everything that is under way and returns what happened, a line each. A place in a log is
written as epoch/offset: 1/3 is a log whose last record is of epoch 1, and whose next has offset 3.
"""

from contextlib import suppress
from inspect import cleandoc

import pytest

from odradek.errors import ErrorCode, KafkaError
from odradek.raft.election import ElectionState
from odradek.raft.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    Message,
    OffsetAndEpoch,
    VoteRequest,
    VoteResponse,
)
from odradek.raft.outgoing import Settings
from odradek.raft.ready import QuorumBroken, Unreachable
from odradek.raft.roles import Candidate, Follower, Leader, Prospective
from odradek.raft.voters import ReplicaKey
from tests.raft.cluster import CLUSTER_ID, Cluster, key


def roles(cluster):
    return {n: node.role for n, node in cluster.nodes.items() if node.driver is not None}


# 5.2 Leader election


def test_a_voter_that_hears_of_nobody_is_elected_by_a_majority():
    cluster = Cluster(voters=3)
    cluster.cut(3)
    cluster.lose_patience(1)
    assert cluster.play(fetches=False) == cleandoc(
        """
        1 is prospective in epoch 0
        1 → 2: pre-vote in epoch 0, my log ends at 0/0
        2 → 1: yes, epoch 0
        1 is candidate in epoch 1
        1 → 2: vote in epoch 1, my log ends at 0/0
        2 is unattached in epoch 1
        2 → 1: yes, epoch 1
        1 is leader in epoch 1
        1 → 2: I lead epoch 1
        2 is follower in epoch 1
        """
    )
    assert [node.raft.high_watermark for node in cluster.nodes.values()] == [1, 1, 0]


def test_an_only_voter_does_not_wait_for_anybody():
    cluster = Cluster(voters=1)
    cluster.tick(1)
    assert cluster.play() == "1 is leader in epoch 1"
    assert cluster.nodes[1].store.election == ElectionState(1, leader_id=1)
    assert cluster.nodes[1].raft.high_watermark == 1
    cluster.crash(1)
    cluster.start(1)
    assert cluster.nodes[1].role == "resigned", "it does not lead its old epoch again"
    cluster.tick(1)
    assert (cluster.nodes[1].role, cluster.nodes[1].raft.epoch) == ("leader", 2)


def test_five_voters_need_three():
    cluster = Cluster(voters=5)
    cluster.cut(1, 2)
    cluster.lose_patience(1)
    cluster.deliver()
    assert roles(cluster)[1] == "prospective", "two of five do not even get past the pre-vote"
    cluster.heal()
    cluster.cut(1, 2, 3)
    cluster.run(6000)
    assert len(cluster.leaders()) == 1 and cluster.leaders()[0] in (1, 2, 3)


def test_a_split_vote_is_resolved_by_another_election():
    cluster = Cluster(voters=3)
    cluster.cut(3)
    cluster.lose_patience(1)
    cluster.lose_patience(2)
    assert cluster.play(fetches=False) == cleandoc(
        """
        1 is prospective in epoch 0
        2 is prospective in epoch 0
        1 → 2: pre-vote in epoch 0, my log ends at 0/0
        2 → 1: pre-vote in epoch 0, my log ends at 0/0
        2 → 1: yes, epoch 0
        1 is candidate in epoch 1
        1 → 2: yes, epoch 0
        2 is candidate in epoch 1
        1 → 2: vote in epoch 1, my log ends at 0/0
        2 → 1: vote in epoch 1, my log ends at 0/0
        2 → 1: no, epoch 1
        1 → 2: no, epoch 1
        """
    )
    cluster.run(10_000)
    (leader,) = cluster.leaders()
    assert cluster.nodes[leader].raft.epoch > 1


def test_a_voter_votes_once_in_an_epoch_even_if_it_crashes_in_between():
    cluster = Cluster(voters=3)
    vote = VoteRequest(CLUSTER_ID, key(3), key(1), 5, 0, 0)
    assert ask(cluster, 3, vote).is_granted
    cluster.crash(3)
    cluster.start(3)
    assert not ask(cluster, 3, vote._replace(candidate=key(2))).is_granted
    assert ask(cluster, 3, vote).is_granted, "the same candidate may ask again"


def ask(cluster, node_id, request, sender=9):
    """Return a node's response."""
    responses = []
    driver = cluster.nodes[node_id].driver
    send, driver._send = driver._send, lambda message: responses.append(message)
    cluster.act(node_id, lambda driver: driver.step(Message(sender, node_id, 77, request), cluster.now))
    driver._send = send
    return next(
        (item.body for item in responses if item.correlation_id == 77 and item.receiver == sender), None
    )


def test_the_vote_is_on_disk_before_it_is_answered():
    cluster = Cluster(voters=3)
    raft = cluster.nodes[3].raft
    ready = raft.step(Message(1, 3, 1, VoteRequest(CLUSTER_ID, key(3), key(1), 1, 0, 0)), 0)
    assert ready.election == ElectionState(1, voted_id=1, voted_directory_id=key(1).directory_id)
    assert ready.messages[0].body == VoteResponse(ErrorCode.NONE, -1, 1, True)
    assert ready._fields.index("election") < ready._fields.index("messages")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"voter": key(2, generation=1)}, ErrorCode.INVALID_VOTER_KEY),
        ({"end_offset": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_epoch": 3}, ErrorCode.INVALID_REQUEST),
        ({"candidate": ReplicaKey(-1)}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_vote_that_is_refused(change, error):
    cluster = Cluster(voters=3)
    assert ask(cluster, 2, VoteRequest(CLUSTER_ID, key(2), key(3), 2, 0, 0)).is_granted
    response = ask(cluster, 2, VoteRequest(CLUSTER_ID, key(2), key(1), 3, 0, 0)._replace(**change))
    assert (response.error, response.is_granted) == (error, False)


def test_a_stale_candidate_is_fenced_and_follows():
    cluster = Cluster(voters=3)
    cluster.cut(3)
    cluster.elect(1)
    cluster.crash(1)
    cluster.start(1)
    cluster.elect(2)
    cluster.heal()
    cluster.transcript.clear()
    cluster.lose_patience(3)
    assert cluster.play().startswith(
        cleandoc(
            """
            3 is prospective in epoch 0
            3 → 1: pre-vote in epoch 0, my log ends at 0/0
            3 → 2: pre-vote in epoch 0, my log ends at 0/0
            1 → 3: FENCED_LEADER_EPOCH, epoch 2
            3 is follower in epoch 2
            """
        )
    )


# 5.3 Log replication


def test_a_record_is_committed_once_a_majority_has_it_on_disk():
    cluster = Cluster(voters=3)
    cluster.elect(1)
    cluster.cut(3)
    cluster.transcript.clear()
    cluster.unsynced = {2}
    assert cluster.propose(1, "x", "y") == 2
    assert cluster.play() == "1 → 2: 2 records, committed 1"
    assert cluster.nodes[1].raft.high_watermark == 1, "2 has it in memory only, and does not fetch on"
    cluster.unsynced.clear()
    cluster.act(2, lambda driver: driver.sync(cluster.now))
    assert cluster.play() == cleandoc(
        """
        2 → 1: fetch from 1/3
        1 → 2: committed 3
        2 → 1: fetch from 1/3
        """
    )
    assert [node.raft.high_watermark for node in cluster.nodes.values()] == [3, 3, 1]


def test_the_leader_counts_itself_only_as_far_as_it_is_synced():
    cluster = Cluster(voters=3)
    cluster.elect(1)
    cluster.cut(3)
    cluster.unsynced = {1}
    cluster.propose(1, "x")
    cluster.deliver()
    assert cluster.nodes[2].store.synced_offset == 2 and cluster.nodes[1].raft.high_watermark == 1
    cluster.act(1, lambda driver: driver.sync(cluster.now))
    assert cluster.nodes[1].raft.high_watermark == 2


def test_a_leader_that_steps_down_syncs_before_it_fetches():
    """Else its new leader would count records that a crash can take."""
    cluster = Cluster(voters=3)
    cluster.elect(1)
    cluster.unsynced = {1}
    cluster.propose(1, "x")
    cluster.deliver()
    cluster.elect(2)
    assert cluster.nodes[1].role == "follower"
    assert "1 → 2: fetch" not in cluster.play()
    cluster.act(1, lambda driver: driver.sync(cluster.now))
    assert cluster.play().startswith("1 → 2: fetch from 1/2")


def test_a_fetch_is_parked_until_there_is_something_or_its_time_is_up():
    cluster = Cluster(voters=3)
    cluster.elect(1)
    assert len(cluster.nodes[1].raft.role.parked) == 2
    cluster.transcript.clear()
    cluster.now += 499
    cluster.tick(1)
    assert cluster.play() == ""
    cluster.now += 1
    cluster.tick(1)
    assert cluster.play() == cleandoc(
        """
        1 → 2: committed 1
        1 → 3: committed 1
        2 → 1: fetch from 1/1
        3 → 1: fetch from 1/1
        """
    )


def test_a_replica_has_one_fetch_parked_and_a_second_answers_the_first():
    cluster = Cluster(voters=3)
    cluster.elect(1)
    leader = cluster.nodes[1].raft
    fetch = FetchRequest(CLUSTER_ID, key(9), 1, 1, 1, 1, 500, 1000)
    assert leader.step(Message(9, 1, 1, fetch), cluster.now).messages == ()
    (response,) = leader.step(Message(9, 1, 2, fetch), cluster.now).messages
    assert (response.receiver, response.correlation_id, response.body.error) == (9, 1, ErrorCode.NONE)
    assert [item.correlation_id for item in leader.role.parked if item.sender == 9] == [2]


def test_an_observer_that_is_gone_is_forgotten():
    cluster = Cluster(voters=3)
    cluster.elect(1)
    leader = cluster.nodes[1].raft
    for observer, minutes in ((8, 0), (9, 6)):
        fetch = FetchRequest(CLUSTER_ID, key(observer), 1, 1, 1, 1, 0, 1000)
        leader.step(Message(observer, 1, 1, fetch), cluster.now + minutes * 60_000)
    assert set(leader.role.progress) == {key(2), key(3), key(9)}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"epoch": 0, "last_fetched_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"fetch_offset": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_fetched_epoch": 2}, ErrorCode.INVALID_REQUEST),
        ({"max_wait_ms": -1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_fetch_that_is_refused(change, error):
    cluster = Cluster(voters=3)
    cluster.elect(1)
    fetch = FetchRequest(CLUSTER_ID, key(2), 1, 1, 1, 1, 500, 1000)
    response = ask(cluster, 1, fetch._replace(**change))
    assert response == FetchResponse(error, 1, 1)
    assert ask(cluster, 2, fetch).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(cluster, 1, fetch) is None, "a good one is parked"


def test_diverging_logs_are_truncated_to_where_they_agree():
    """Figure 7: a leader that lost its followers goes on appending, and comes back to another history."""
    cluster = Cluster(voters=3)
    cluster.elect(1)
    cluster.propose(1, "a")
    cluster.deliver()
    cluster.cut(1)
    cluster.propose(1, "lost")
    cluster.propose(1, "lost too")
    cluster.elect(2)
    cluster.propose(2, "b")
    cluster.deliver()
    cluster.heal()
    cluster.transcript.clear()
    cluster.nodes[1].raft.role.begin_deadline_ms = cluster.now
    cluster.run(400)
    assert cluster.play(about=1) == cleandoc(
        """
        1 → 2: I lead epoch 1
        1 → 3: I lead epoch 1
        1 is follower in epoch 2
        1 → 2: fetch from 1/4
        2 → 1: we diverge after 1/2
        1 → 2: fetch from 1/2
        2 → 1: 2 records, committed 4
        1 → 2: fetch from 2/4
        """
    )
    assert cluster.nodes[1].values == cluster.nodes[2].values == [(1, "a"), (2, "b")]


def test_truncation_goes_back_epoch_by_epoch():
    cluster = Cluster(voters=3)
    cluster.elect(1)
    cluster.cut(1)
    for _ in range(3):  # 1 leads again and again, and nobody hears of it
        cluster.propose(1, "lost")
        cluster.nodes[1].store.sync()
        cluster.act(1, lambda driver: driver._perform(driver.raft.resign(cluster.now), cluster.now))
        cluster.act(1, force_leadership)
    assert cluster.nodes[1].raft.epoch == 7
    cluster.nodes[2].store.election = ElectionState(8)
    cluster.nodes[2].store.crash()
    cluster.start(2)
    cluster.elect(2)
    cluster.heal()
    cluster.run(3000)
    assert cluster.nodes[1].store.log == cluster.nodes[2].store.log
    assert cluster.nodes[1].values == []


def force_leadership(driver):
    raft = driver.raft
    raft._become_unattached(raft.epoch + 1)
    raft._become(Prospective(raft.epoch, 0))
    raft._become(Candidate(raft.epoch + 1, 0, raft.node))
    raft._become_leader((raft.node,))
    driver._perform(raft._ready(), 0)


def test_a_log_is_never_truncated_below_the_high_watermark():
    cluster = Cluster(voters=3)
    cluster.elect(1)
    cluster.propose(1, "a")
    cluster.deliver()
    raft = cluster.nodes[2].raft
    assert raft.high_watermark == 2
    request = next(iter(raft._outgoing.requests._peers.values()))
    response = FetchResponse(ErrorCode.NONE, 1, 1, 2, diverging=OffsetAndEpoch(1, 1))
    with pytest.raises(QuorumBroken, match="asks to truncate the metadata log to offset 1"):
        raft.step(Message(1, 2, request.correlation_id, response), cluster.now)
    assert cluster.nodes[2].store.end_offset == 2


def test_a_response_that_comes_late_or_twice_is_dropped():
    cluster = Cluster(voters=3)
    cluster.elect(1)
    cluster.cut(3)
    cluster.propose(1, "a")
    (response,) = [item for item in cluster.network if item.receiver == 2]
    cluster.deliver()
    log = list(cluster.nodes[2].store.log)
    cluster.act(2, lambda driver: driver.step(response, cluster.now))
    assert cluster.nodes[2].store.log == log


def test_a_full_disk_keeps_a_follower_behind_until_there_is_room():
    cluster = Cluster(voters=3)
    cluster.elect(1)
    cluster.nodes[2].store.is_full = True
    cluster.propose(1, "a")
    with pytest.raises(KafkaError):
        cluster.deliver()
    cluster.deliver()
    cluster.nodes[2].store.is_full = False
    cluster.run(1000)
    assert cluster.nodes[2].values == [(1, "a")]


def test_a_leader_that_cannot_open_its_epoch_resigns():
    cluster = Cluster(voters=3)
    cluster.nodes[1].store.is_full = True
    cluster.lose_patience(1)
    with pytest.raises(KafkaError):
        cluster.deliver()
    assert cluster.nodes[1].role == "resigned"
    cluster.nodes[1].store.is_full = False
    cluster.run(10_000)
    assert len(cluster.leaders()) == 1


def test_a_leader_whose_disk_is_full_resigns_and_another_one_leads():
    cluster = Cluster(voters=3)
    cluster.elect(1)
    cluster.nodes[1].store.is_full = True
    with pytest.raises(KafkaError):
        cluster.propose(1, "a")
    assert cluster.nodes[1].role == "resigned"
    while cluster.leaders() in ([], [1]):
        with suppress(KafkaError):  # of node 1, which cannot append what it fetches
            cluster.run(100)
    (leader,) = cluster.leaders()
    cluster.propose(leader, "b")
    cluster.nodes[1].store.is_full = False
    cluster.run(5_000)
    assert [value for _, value in cluster.nodes[1].values] == ["b"]


def test_the_only_voter_goes_on_leading_though_its_disk_is_full():
    cluster = Cluster(voters=1)
    cluster.elect(1)
    cluster.nodes[1].store.is_full = True
    with pytest.raises(KafkaError):
        cluster.propose(1, "a")
    assert cluster.nodes[1].role == "leader"


# 5.4 Safety


def test_a_candidate_with_an_older_log_is_not_elected():
    cluster = Cluster(voters=3)
    cluster.elect(1)
    cluster.cut(3)
    cluster.propose(1, "a")
    cluster.deliver()
    cluster.crash(1)
    cluster.heal()
    cluster.transcript.clear()
    cluster.nodes[2].raft.role.has_fetched = False
    cluster.lose_patience(3)
    assert cluster.play() == cleandoc(
        """
        3 is prospective in epoch 1
        3 → 2: pre-vote in epoch 1, my log ends at 1/1
        2 → 3: no, epoch 1
        """
    )
    assert not ask(cluster, 2, VoteRequest(CLUSTER_ID, key(2), key(3), 2, 1, 1)).is_granted
    assert ask(cluster, 2, VoteRequest(CLUSTER_ID, key(2), key(3), 3, 1, 2)).is_granted


def test_an_entry_of_an_older_epoch_is_not_committed_by_counting():
    """Figure 8. The record of epoch 1 is on a majority, and still not committed; with one of epoch 3 it is."""
    cluster = Cluster(voters=5)
    cluster.elect(1)
    cluster.cuts = {(1, n) for n in (3, 4, 5)}
    cluster.propose(1, "two")  # (a) it is on 1 and 2 alone
    cluster.deliver()
    cluster.crash(1)
    cluster.cuts = {(5, 2), (2, 5)}
    for voter in (3, 4):
        cluster.nodes[voter].raft.role.has_fetched = False
    cluster.lose_patience(5)
    cluster.deliver(until=lambda: cluster.nodes[5].role == "leader")  # (b) by 3, 4 and itself
    cluster.crash(5)  # it has a record of epoch 2 where 1 and 2 have "two"
    cluster.heal()
    cluster.start(1)
    cluster.nodes[1].store.batches_per_read = 1
    cluster.lose_patience(1)
    cluster.deliver()
    cluster.lose_patience(1)
    leader = cluster.nodes[1].raft
    cluster.deliver(until=lambda: isinstance(leader.role, Leader) and fetched_offset(leader, 3) == 2)  # (c)
    assert leader.epoch == 3 and leader.role.epoch_start_offset == 2
    assert fetched_offset(leader, 2) >= 2
    assert leader.role.majority_offset(leader.voters, leader.node, leader.log.synced_offset) == 2
    assert leader.high_watermark == 0, "three have the record, but 5 could still overwrite it"
    cluster.deliver()
    assert leader.high_watermark == 3, "(e): with the record of epoch 3, all before is committed"


def fetched_offset(leader, node_id):
    return leader.role.progress_of(key(node_id)).end_offset


def test_a_new_leader_has_everything_that_was_committed():
    cluster = Cluster(voters=5)
    cluster.elect(1)
    cluster.cut(4, 5)
    cluster.propose(1, "a")
    cluster.deliver()
    cluster.crash(1)
    cluster.heal()
    cluster.run(10_000)
    assert cluster.leaders()[0] in (2, 3)
    assert {tuple(node.values) for node in cluster.nodes.values() if node.driver} == {((1, "a"),)}


# 5.5, 6: leaders that lose touch (KIP-595), and pre-vote (KIP-996)


def test_a_leader_that_nobody_fetches_from_resigns():
    cluster = Cluster(voters=5)
    cluster.elect(1)
    cluster.transcript.clear()
    cluster.cut(1, 2)
    cluster.now += cluster.settings.check_quorum_ms
    cluster.tick(1)
    assert cluster.play().startswith("1 is resigned in epoch 1\n")
    with pytest.raises(KafkaError) as refusal:
        cluster.propose(1, "x")
    assert refusal.value.code is ErrorCode.NOT_CONTROLLER
    assert cluster.nodes[1].raft.leader_id is None


def test_a_leader_that_a_majority_fetches_from_stays():
    cluster = Cluster(voters=5)
    cluster.elect(1)
    cluster.cut(4, 5)
    cluster.run(60_000)
    assert cluster.leaders() == [1] and cluster.nodes[1].raft.epoch == 1


def test_parked_fetches_are_refused_when_the_leader_resigns():
    cluster = Cluster(voters=3)
    cluster.elect(1)
    cluster.transcript.clear()
    cluster.act(1, lambda driver: driver._perform(driver.raft.resign(cluster.now), cluster.now))
    assert "1 → 2: NOT_LEADER_OR_FOLLOWER, epoch 1" in cluster.play()


def test_a_voter_that_was_cut_off_does_not_disturb_the_leader():
    cluster = Cluster(voters=3)
    cluster.elect(1)
    cluster.cut(3)
    for _ in range(5):
        cluster.run(2000)
    assert cluster.nodes[3].raft.epoch == 1, "it asks, and opens no epoch"
    cluster.heal()
    cluster.transcript.clear()
    cluster.run(5000)
    lines = cluster.play()
    assert "2 → 3: no, epoch 1" in lines and "1 → 3: no, epoch 1" in lines
    assert "3 is follower in epoch 1" in lines
    cluster.run(10_000)
    assert cluster.leaders() == [1] and cluster.nodes[1].raft.epoch == 1


def under_way(cluster, node_id, peer):
    """The correlation id of what this node has asked that one."""
    return cluster.nodes[node_id].raft._outgoing.requests._peers[peer].correlation_id


def test_nobody_waits_for_a_leader_whose_process_has_ended():
    cluster = Cluster()
    cluster.elect(1)
    cluster.deliver()
    cluster.crash(1)
    began = cluster.now
    for voter in (2, 3):
        gone = Unreachable(1, under_way(cluster, voter, 1), is_gone=True)
        cluster.act(voter, lambda driver, event=gone: driver.report(event, cluster.now))
    assert {cluster.nodes[voter].role for voter in (2, 3)} == {"follower"}
    patience = {voter: cluster.nodes[voter].raft.role.deadline_ms - cluster.now for voter in (2, 3)}
    assert patience[2] < 50 and patience[3] >= 200, "one after the other: no votes are split"
    cluster.lose_patience(2)
    cluster.deliver(until=lambda: cluster.leaders())
    assert cluster.leaders() and cluster.now - began < cluster.settings.election_timeout_ms // 5


def test_a_leader_that_only_does_not_answer_keeps_its_time():
    cluster = Cluster()
    cluster.elect(1)
    cluster.deliver()
    deadline_ms = cluster.nodes[2].raft.role.deadline_ms
    lost = Unreachable(1, under_way(cluster, 2, 1))
    cluster.act(2, lambda driver: driver.report(lost, cluster.now))
    role = cluster.nodes[2].raft.role
    assert (role.deadline_ms, role.has_fetched) == (deadline_ms, True)


def test_followers_that_did_not_fetch_yet_grant_pre_votes():
    """Else two voters could go on for ever to tell each other of a leader that is gone."""
    cluster = Cluster(voters=3)
    cluster.elect(1)
    cluster.crash(1)
    cluster.run(10_000)
    assert len(cluster.leaders()) == 1


# 6: a clean stop, and changes of the voters (KIP-853)


def test_a_leader_hands_over_at_a_clean_stop():
    cluster = Cluster(voters=3)
    cluster.elect(1)
    cluster.cut(2)
    cluster.propose(1, "a")  # 3 has more
    cluster.deliver()
    cluster.heal()
    cluster.transcript.clear()
    cluster.act(1, lambda driver: driver.stop(cluster.now))
    cluster.deliver()
    assert cluster.nodes[1].raft.may_stop, "both were told"
    cluster.tick(3)
    cluster.deliver()
    assert cluster.leaders() == [3], "at once: nobody waits for a timeout"
    lines = cluster.transcript
    assert lines[0] == "1 is resigned in epoch 1"
    assert "1 → 2: epoch 1 ends, next [3, 2]" in lines and "3 is leader in epoch 2" in lines
    cluster.run(10_000)
    assert cluster.leaders() == [3] and cluster.nodes[1].role == "follower"


def test_a_leader_that_stops_need_not_tell_those_that_are_gone():
    cluster = Cluster(voters=3)
    cluster.elect(1)
    cluster.cut(2)
    cluster.cut(3)
    cluster.act(1, lambda driver: driver.stop(cluster.now))
    for peer, is_gone, may_stop in [(2, True, False), (3, False, False)]:
        event = Unreachable(peer, under_way(cluster, 1, peer), is_gone)
        cluster.act(1, lambda driver, event=event: driver.report(event, cluster.now))
        assert cluster.nodes[1].raft.may_stop is may_stop
    assert cluster.nodes[1].raft.role.unacknowledged == {3}, "its silence is no proof"


def test_five_voters_hand_over_at_once_too():
    cluster = Cluster(voters=5)
    cluster.elect(1)
    cluster.act(1, lambda driver: driver.stop(cluster.now))
    cluster.deliver()
    successor = cluster.nodes[2].raft.role
    assert isinstance(successor, Follower) and successor.deadline_ms == cluster.now
    cluster.tick(2)
    cluster.deliver()
    assert cluster.leaders() == [2]


def test_a_voter_that_stops_does_not_stand_for_election():
    cluster = Cluster(voters=3)
    cluster.elect(1)
    cluster.act(2, lambda driver: driver.stop(cluster.now))
    cluster.crash(1)
    cluster.crash(3)
    cluster.run(30_000)
    assert cluster.nodes[2].role == "follower" and cluster.nodes[2].raft.may_stop


def test_observers_follow_and_do_not_count():
    cluster = Cluster(voters=3, observers=2)
    cluster.elect(1)
    cluster.run(1000)
    cluster.cut(2, 3)
    cluster.propose(1, "a")
    cluster.deliver()
    assert cluster.nodes[4].values == cluster.nodes[5].values == [(1, "a")]
    assert cluster.nodes[1].raft.high_watermark == 1
    cluster.heal()
    cluster.run(5000)
    assert [node.raft.high_watermark for node in cluster.nodes.values()] == [2] * 5
    cluster.cut(4)
    cluster.run(10_000)
    assert cluster.nodes[4].role == "follower", "an observer never stands for election"


def test_an_observer_finds_the_next_leader():
    cluster = Cluster(voters=3, observers=1)
    cluster.elect(1)
    cluster.run(1000)
    cluster.crash(1)
    cluster.run(15_000)
    (leader,) = cluster.leaders()
    assert cluster.nodes[4].raft.leader_id == leader


def test_a_leader_upgrades_the_log_so_that_the_voters_are_in_it():
    cluster = Cluster(voters=3, kraft_version=1)
    cluster.elect(1)
    for node in cluster.nodes.values():
        assert node.raft.log.voters.kraft_version == 1
        assert node.raft.log.voters.last_offset == 2
        assert node.raft.voters == cluster.static
    cluster.elect(2)
    assert cluster.nodes[2].raft.log.voters.last_offset == 2, "once"


def test_a_log_start_that_moved_is_answered_with_the_snapshot():
    cluster = Cluster(voters=3)
    cluster.elect(1)
    cluster.propose(1, "a")
    cluster.deliver()
    snapshot_id = cluster.take_snapshot(1)
    assert snapshot_id == OffsetAndEpoch(2, 1)
    fetch = FetchRequest(CLUSTER_ID, key(7), 1, 0, 0, 0, 500, 1000)
    assert ask(cluster, 1, fetch).snapshot_id == snapshot_id
    assert ask(cluster, 1, fetch._replace(fetch_offset=1, last_fetched_epoch=1)).snapshot_id == snapshot_id
    assert ask(cluster, 1, fetch._replace(fetch_offset=2, last_fetched_epoch=1, high_watermark=2)) is None


def behind_a_snapshot():
    """3 was away while 1 led, took a snapshot of what is committed, and cut its log there."""
    cluster = Cluster(voters=3, settings=Settings(fetch_max_bytes=250))
    cluster.cut(3)
    cluster.elect(1)
    cluster.propose(1, "a")
    cluster.deliver()
    snapshot_id = cluster.take_snapshot(1)
    cluster.heal()
    cluster.transcript.clear()
    return cluster, snapshot_id


def test_a_follower_that_lacks_what_the_log_has_lost_fetches_the_snapshot():
    cluster, snapshot_id = behind_a_snapshot()
    size = len(cluster.nodes[1].store.snapshots[snapshot_id])
    assert 250 < size <= 500
    cluster.propose(1, "b")
    cluster.run(1500)
    lines = cluster.play(about=3).splitlines()
    begin = lines.index("1 → 3: fetch snapshot 1/2")
    assert lines[begin : begin + 6] == [
        "1 → 3: fetch snapshot 1/2",
        "3 → 1: snapshot 1/2 from byte 0",
        f"1 → 3: 250 of {size} bytes",
        "3 → 1: snapshot 1/2 from byte 250",
        f"1 → 3: {size - 250} of {size} bytes",
        "3 → 1: fetch from 1/2",
    ]
    assert cluster.nodes[3].raft.log.start_offset == 2
    assert cluster.nodes[3].store.log == cluster.nodes[1].store.log
    assert cluster.nodes[3].raft.high_watermark == 3


def test_a_snapshot_that_is_gone_is_replaced_by_the_newest():
    cluster, _ = behind_a_snapshot()
    cluster.deliver(until=lambda: "1 → 3: fetch snapshot 1/2" in cluster.transcript)
    cluster.run(1000)
    cluster.crash(3)
    cluster.start(3)
    cluster.propose(1, "b")
    cluster.deliver(until=lambda: "1 → 3: fetch snapshot 1/2" in cluster.transcript)
    cluster.nodes[1].store.snapshots.clear()
    cluster.take_snapshot(1)
    cluster.run(3000)
    assert cluster.nodes[3].store.log == cluster.nodes[1].store.log


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"snapshot_id": OffsetAndEpoch(1, 1)}, ErrorCode.SNAPSHOT_NOT_FOUND),
    ],
)
def test_a_fetch_of_a_snapshot_that_is_refused(change, error):
    cluster, snapshot_id = behind_a_snapshot()
    fetch = FetchSnapshotRequest(CLUSTER_ID, key(3), 1, snapshot_id, 0, 1000)
    response = ask(cluster, 1, fetch._replace(**change))
    assert (response.error, response.data) == (error, b"")
    assert ask(cluster, 2, fetch).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(cluster, 1, fetch).error is ErrorCode.NONE


def test_a_snapshot_of_less_than_is_committed_stops_the_node():
    cluster = Cluster(voters=3)
    cluster.elect(1)
    cluster.propose(1, "a")
    cluster.deliver()
    raft = cluster.nodes[2].raft
    request = next(iter(raft._outgoing.requests._peers.values()))
    response = FetchResponse(ErrorCode.NONE, 1, 1, 2, snapshot_id=OffsetAndEpoch(1, 1))
    with pytest.raises(QuorumBroken, match="offers a snapshot of the metadata that ends at offset 1"):
        raft.step(Message(1, 2, request.correlation_id, response), cluster.now)


# Other clusters


@pytest.mark.parametrize("is_voter", [True, False])
def test_a_node_of_another_cluster_is_asked_a_few_times_a_minute_whatever_the_role(is_voter):
    """Its own timers run out again and again meanwhile, and each new role would ask at once."""
    cluster = Cluster(voters=3)
    node_id = 3 if is_voter else 4
    if not is_voter:
        cluster.add_node(4)
    raft = cluster.nodes[node_id].raft
    raft._cluster_id = raft._outgoing._cluster_id = "another"
    asked = {}

    def send(message):
        if message.sender == node_id and isinstance(message.body, VoteRequest | FetchRequest):
            asked[message.receiver] = asked.get(message.receiver, 0) + 1
        cluster.network.append(message)

    cluster.send = send
    for node in cluster.nodes.values():
        node.driver._send = send
    cluster.run(60_000)
    assert sum(asked.values()) > 0 and all(count <= 10 for count in asked.values()), asked
    assert raft.leader_id is None


def test_a_node_that_has_moved_to_this_cluster_is_asked_again():
    cluster = Cluster(voters=3)
    raft = cluster.nodes[3].raft
    raft._cluster_id = raft._outgoing._cluster_id = "another"
    cluster.run(20_000)
    assert raft.leader_id is None
    raft._cluster_id = raft._outgoing._cluster_id = CLUSTER_ID
    cluster.run(20_000)
    assert raft.leader_id == cluster.leaders()[0]
